"""What there is to say of a dataset before it is loaded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from lrpe.lab.data.dataset import Dataset

HUB, HERE = "hub", "here"  # in place of a path: the Hugging Face hub, and what every machine has


@dataclass(frozen=True)
class Entry:
    """A dataset by name. ``load`` takes the path to its official layout (nothing if it needs none) and its options.

    ``kind`` is what a sample is: text (for language models), sentences (one or two, with a label), sequence (token ids
    with a label), pair (two sequences with a label) or image.
    """

    name: str
    kind: Literal["text", "sentences", "sequence", "pair", "image"]
    summary: str
    licence: str
    source: str  # where to get it
    layout: str | None  # what lies under its path; None if it is embedded or generated, or of the hub alone
    load: Callable[..., Dataset] | None  # None if it is of the hub alone
    hub: Callable[..., Dataset] | None = None  # takes the options alone, and downloads data, never code

    @property
    def embedded(self) -> bool:
        """Whether every machine has it."""
        return self.layout is None and self.load is not None

    @property
    def ways(self) -> list[str]:
        """How it is come by: it is here, a path is named, the hub is asked."""
        ways = {"here": self.embedded, "--path": self.layout is not None, "--hub": self.hub is not None}
        return [way for way, there in ways.items() if there]
