"""Probes of position: copying, recall at a fixed offset, and indirect indexing."""

from functools import partial
from typing import Annotated

import numpy as np

from lrpe.errors import require
from lrpe.lab.data.dataset import Dataset
from lrpe.lab.data.probes.probe import (
    NO_TARGET,
    Length,
    Size,
    Symbols,
    Times,
    Variant,
    Written,
    at_lengths,
    describe_probe,
    letters,
    make_probe,
)
from lrpe.schema import Count, Range

_Alphabet = Annotated[int, Range(2, 10_000)]


def load_copying(
    length: Length = 64, times: Times = 8, alphabet: _Alphabet = 26, train: Size = 100_000, test: Size = 1_000
) -> Dataset:
    """Letters, then "copy" and the same letters again, each of which is to be predicted.

    Training has every length from 1 to ``length``, so that the distance is not always the same.
    """
    symbols = Symbols((*letters(alphabet), "copy", "padding"))
    writers = {
        "train": partial(_write_copy_up_to, length, alphabet),
        "validation": partial(_write_copy, length, alphabet),
        "longer": partial(_write_copy, times * length, alphabet),
    }
    variants = {split: Variant(write, 1 / alphabet) for split, write in writers.items()}
    return make_probe("copying", symbols, variants, train, test, length=length, times=times, alphabet=alphabet)


def _write_copy_up_to(most: int, alphabet: int, generator: np.random.Generator) -> Written:
    return _write_copy(int(generator.integers(1, most + 1)), alphabet, generator)


def _write_copy(length: int, alphabet: int, generator: np.random.Generator) -> Written:
    text = generator.integers(alphabet, size=length)
    ids = np.concatenate([text, [alphabet], text[:-1]])
    return Written(ids, np.concatenate([np.full(length, NO_TARGET), text]))


def load_fixed_offset(
    length: Length = 256,
    times: Times = 8,
    offset: Count = 16,
    alphabet: _Alphabet = 26,
    train: Size = 100_000,
    test: Size = 1_000,
) -> Dataset:
    """Letters; the answer at every position is the letter ``offset`` positions before it, once there is one."""
    require(offset < length, f"offset must be below length; got offset={offset}, length={length}.")
    symbols = Symbols((*letters(alphabet), "padding"))
    write = partial(_write_offset, offset, alphabet)
    variants = at_lengths(write, length, times, chance=lambda _: 1 / alphabet)
    recipe = {"length": length, "times": times, "offset": offset, "alphabet": alphabet}
    return make_probe("fixed-offset", symbols, variants, train, test, **recipe)


def _write_offset(offset: int, alphabet: int, length: int, generator: np.random.Generator) -> Written:
    ids = generator.integers(alphabet, size=length)
    return Written(ids, np.concatenate([np.full(offset, NO_TARGET), ids[:-offset]]))


def load_indirect_indexing(
    length: Length = 40,
    shift: Count = 15,
    alphabet: _Alphabet = 52,
    questions: Count = 1,
    train: Size = 1_000_000,
    test: Size = 10_000,
) -> Dataset:
    """Distinct letters, then questions: a distance and a letter; which letter is that far from it? (PoPE, 2026)

    Args:
        length: the number of letters.
        shift: the largest distance, to the left (−) or to the right (+); 0 is not asked.
        alphabet: the number of different letters.
        questions: questions per sequence, each of two tokens.
        train, test: samples of the training split, and of each other.
    """
    require(length <= alphabet, f"length must be at most alphabet; got length={length}, alphabet={alphabet}.")
    require(shift < length, f"shift must be below length; got shift={shift}, length={length}.")
    distances = tuple(d for d in range(-shift, shift + 1) if d)
    symbols = Symbols((*letters(alphabet), *(f"{d:+d}" for d in distances), "padding"))
    write = partial(_write_indices, length, np.array(distances), alphabet, questions)
    variants = {split: Variant(write, 1 / (length - 1)) for split in ("train", "validation")}
    recipe = {"length": length, "shift": shift, "alphabet": alphabet, "questions": questions}
    return make_probe("indirect-indexing", symbols, variants, train, test, **recipe)


def _write_indices(
    length: int, distances: np.ndarray, alphabet: int, questions: int, generator: np.random.Generator
) -> Written:
    text = generator.permutation(alphabet)[:length]
    numbers = generator.integers(len(distances), size=questions)
    asked = distances[numbers]
    least, most = np.maximum(0, -asked), np.minimum(length, length - asked)  # where the answer is inside the text
    places = generator.integers(least, most)
    ids = np.concatenate([text, np.stack([alphabet + numbers, text[places]], axis=1).reshape(-1)])
    targets = np.full(len(ids), NO_TARGET)
    targets[length + 1 :: 2] = text[places + asked]
    return Written(ids, targets)


ENTRIES = (
    describe_probe("copying", "repeat a text of up to a given length", load_copying),
    describe_probe("fixed-offset", "the letter a fixed number of positions back", load_fixed_offset),
    describe_probe("indirect-indexing", "the letter at a given distance from a given letter", load_indirect_indexing),
)
