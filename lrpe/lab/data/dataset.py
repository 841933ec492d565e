"""Datasets: splits of samples, each sample a function of its index, its epoch and a seed; and catalogue entries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

Sample = dict[str, Any]  # arrays, numbers and strings by name


@dataclass(frozen=True)
class Draw:
    """The identity of one sample. All its randomness comes from these numbers, never from a worker's state."""

    index: int
    epoch: int = 0
    seed: int = 0
    copy: int = 0  # which repetition, if the sample comes several times per epoch

    def generator(self) -> np.random.Generator:
        return np.random.default_rng((self.seed, self.epoch, self.index, self.copy))


class Split(Protocol):
    """Samples 0 ... len - 1."""

    def __len__(self) -> int: ...

    def sample(self, draw: Draw) -> Sample: ...


@dataclass(frozen=True)
class Dataset:
    """The splits of a dataset by name (train, validation, test), and facts about it.

    ``facts`` are JSON-friendly: labels, vocabulary size, what was skipped and why. ``facts["content"]`` is a hash of
    what the samples are made of, so it changes when the data changes. ``show`` turns a sample into a readable line.
    """

    name: str
    splits: Mapping[str, Split]
    facts: dict[str, Any] = field(default_factory=dict)
    show: Callable[[Sample], str] = str


@dataclass(frozen=True)
class Rows:
    """A split held in memory, with the same samples in every epoch."""

    rows: list[Sample]

    def __len__(self) -> int:
        return len(self.rows)

    def sample(self, draw: Draw) -> Sample:
        return self.rows[draw.index]


HUB, HERE = "hub", "here"  # in place of a path: the Hugging Face hub, or no files at all


@dataclass(frozen=True)
class Entry:
    """A dataset before it is loaded: its name, what it is, its licence, where to get it, and its loaders.

    ``load`` takes the path of the official layout (nothing if the dataset needs no files) and the options. ``kind`` is
    what a sample is: text (for language models), sentences (one or two, with a label), sequence (token ids with a
    label), pair (two sequences with a label), image, or tokens (token ids with targets at some positions).
    """

    name: str
    kind: Literal["text", "sentences", "sequence", "pair", "image", "tokens"]
    summary: str
    licence: str
    source: str  # where to get it
    layout: str | None  # what its path contains; None if it needs no files or is only on the hub
    load: Callable[..., Dataset] | None  # None if it is only on the hub
    hub: Callable[..., Dataset] | None = None  # takes only the options; downloads data, never code

    @property
    def embedded(self) -> bool:
        """True if it needs no files because it is generated, or part of an installed package."""
        return self.layout is None and self.load is not None

    @property
    def ways(self) -> list[str]:
        """The ways to load it: without files, from a path, from the hub."""
        ways = {"here": self.embedded, "--path": self.layout is not None, "--hub": self.hub is not None}
        return [way for way, there in ways.items() if there]
