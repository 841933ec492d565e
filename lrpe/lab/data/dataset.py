"""What a dataset is: splits of samples, each a function of its index, its epoch and a seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

Sample = dict[str, Any]  # arrays, numbers and strings by name


@dataclass(frozen=True)
class Draw:
    """Which sample is asked for. All that is random in it comes from these numbers, never from a worker's state."""

    index: int
    epoch: int = 0
    seed: int = 0
    copy: int = 0  # of a sample that comes several times an epoch

    def generator(self) -> np.random.Generator:
        return np.random.default_rng((self.seed, self.epoch, self.index, self.copy))


class Split(Protocol):
    """Samples 0 ... len - 1."""

    def __len__(self) -> int: ...

    def sample(self, draw: Draw) -> Sample: ...


@dataclass(frozen=True)
class Dataset:
    """The splits of a dataset by name (train, validation, test), and what there is to say of it.

    ``facts`` are JSON-friendly: labels, vocabulary size, what was skipped and why. ``facts["content"]`` is a hash of
    what the samples are made of: it is another one when the data has changed. ``show`` turns a sample into a line that
    a person can read.
    """

    name: str
    splits: Mapping[str, Split]
    facts: dict[str, Any] = field(default_factory=dict)
    show: Callable[[Sample], str] = str


@dataclass(frozen=True)
class Rows:
    """A split held in memory: samples that are the same in every epoch."""

    rows: list[Sample]

    def __len__(self) -> int:
        return len(self.rows)

    def sample(self, draw: Draw) -> Sample:
        return self.rows[draw.index]


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
