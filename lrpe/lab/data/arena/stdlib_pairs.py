"""Retrieval that every machine has: do two passages of the standard library come from one module?"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from lrpe.errors import require
from lrpe.lab.data.arena.byte_text import byte_facts, require_length, show_with
from lrpe.lab.data.arena.passages import passages
from lrpe.lab.data.arena.sequences import Pairs, Row, Size, held
from lrpe.lab.data.dataset import Dataset
from lrpe.lab.data.embedded import fingerprint, standard_library
from lrpe.lab.data.entry import Entry
from lrpe.typed import Count, Seed

LABELS = ("two modules", "one module")


def load(
    length: Count = 1024, train: Size = 16_000, validation: Size = 1_000, test: Size = 1_000, seed: Seed = 0
) -> Dataset:
    """Pairs of passages of ``length`` bytes; every second pair comes from one module. No module is in two splits."""
    require_length(length)
    sizes = {"train": train, "validation": validation, "test": test}
    require(min(sizes.values()) >= 1, f"A split has one sample or more; got {sizes}.")
    splits = {
        name: held(Pairs, pairs(modules_of(name, length), size, np.random.default_rng((seed, number))))
        for number, (name, size) in enumerate(sizes.items())
    }
    known = byte_facts(splits, LABELS, content=fingerprint(), seed=seed)
    return Dataset("stdlib-pairs", {**splits}, known, partial(show_with, LABELS))


def modules_of(split: str, length: int) -> list[list[bytes]]:
    """The passages of each module of the split that has two or more."""
    found = [passages(module, length) for module in standard_library() if module.split == split]
    long = [texts for texts in found if len(texts) >= 2]
    require(
        len(long) >= 2, f"Two modules for {split} have two passages; {length} bytes are too many: take shorter ones."
    )
    return long


def pairs(modules: list[list[bytes]], count: int, rng: np.random.Generator) -> Iterator[Row]:
    for number in range(count):
        one, other = rng.choice(len(modules), 2, replace=False)
        if number % 2:
            first, second = rng.choice(len(modules[one]), 2, replace=False)
            yield 1, (modules[one][first], modules[one][second])
        else:
            first, second = (rng.integers(len(modules[which])) for which in (one, other))
            yield 0, (modules[one][first], modules[other][second])


ENTRIES = (
    Entry(
        "stdlib-pairs",
        "pair",
        "are two passages of Python's standard library from one module? byte by byte",
        "PSF",
        "the running Python, which brings it",
        None,
        load,
    ),
)
