"""Probes of a state that every token may change: parity, the group S3, and the flip-flop language."""

from functools import partial
from itertools import permutations
from typing import Annotated

import numpy as np

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
    make_probe,
)
from lrpe.schema import Range

_BITS = Symbols(("0", "1", "start", "padding"))
_PERMUTATIONS = tuple(permutations(range(3)))  # identity first; an element maps i to its entry i
_ELEMENTS = Symbols((*("".join(map(str, each)) for each in _PERMUTATIONS), "start", "padding"))
# _PRODUCTS[a, b] is the number of the permutation that applies b first, then a.
_PRODUCTS = np.array(
    [[_PERMUTATIONS.index(tuple(a[i] for i in b)) for b in _PERMUTATIONS] for a in _PERMUTATIONS], dtype=np.int64
)
_INSTRUCTIONS = Symbols(("0", "1", "write", "read", "ignore", "padding"))
_WRITE, _READ, _IGNORE = 2, 3, 4
_Share = Annotated[float, Range(0, 0.999)]


def load_parity(length: Length = 128, times: Times = 4, train: Size = 100_000, test: Size = 1_000) -> Dataset:
    """Bits; the answer at every position is the parity of the ones so far."""
    variants = at_lengths(_write_parity, length, times, chance=lambda _: 1 / 2)
    return make_probe("parity", _BITS, variants, train, test, length=length, times=times)


def _write_parity(length: int, generator: np.random.Generator) -> Written:
    bits = generator.integers(2, size=length)
    return _answer_everywhere(bits, np.cumsum(bits) % 2, start=2)


def load_s3(length: Length = 128, times: Times = 4, train: Size = 100_000, test: Size = 1_000) -> Dataset:
    """Permutations of three things; the answer at every position is the product so far, each applied after the last.

    S3 is the smallest group that does not commute.
    """
    variants = at_lengths(_write_s3, length, times, chance=lambda _: 1 / 6)
    return make_probe("s3", _ELEMENTS, variants, train, test, length=length, times=times)


def _write_s3(length: int, generator: np.random.Generator) -> Written:
    elements = generator.integers(6, size=length)
    product, products = 0, []
    for element in elements:
        product = _PRODUCTS[element, product]
        products.append(product)
    return _answer_everywhere(elements, np.array(products), start=6)


def _answer_everywhere(ids: np.ndarray, targets: np.ndarray, start: int) -> Written:
    """Return a sequence that begins with ``start``, with a target at every other position."""
    return Written(np.concatenate([[start], ids]), np.concatenate([[NO_TARGET], targets]))


def load_flip_flop(
    length: Length = 256,
    ignored: _Share = 0.8,
    sparse: _Share = 0.98,
    dense: _Share = 0.1,
    train: Size = 100_000,
    test: Size = 1_000,
) -> Dataset:
    """Instructions, each with a bit: write it, ignore it, or read the last one written (Liu et al., 2023).

    Args:
        length: instructions per sequence, of two tokens each. The first is "write", the last "read".
        ignored: the share of "ignore" in training and validation; "write" and "read" share the rest equally.
        sparse, dense: the same share in the splits of these names.
        train, test: samples of the training split, and of each other.
    """
    shares = {"train": ignored, "validation": ignored, "sparse": sparse, "dense": dense}
    variants = {split: Variant(partial(_write_flip_flop, length, share), 1 / 2) for split, share in shares.items()}
    recipe = {"length": length, "ignored": ignored, "sparse": sparse, "dense": dense}
    return make_probe("flip-flop", _INSTRUCTIONS, variants, train, test, **recipe)


def _write_flip_flop(length: int, ignored: float, generator: np.random.Generator) -> Written:
    rest = (1 - ignored) / 2
    instructions = generator.choice([_WRITE, _READ, _IGNORE], size=length, p=[rest, rest, ignored])
    instructions[0], instructions[-1] = _WRITE, _READ
    bits = generator.integers(2, size=length)
    written_at = np.maximum.accumulate(np.where(instructions == _WRITE, np.arange(length), 0))
    reads = instructions == _READ
    bits = np.where(reads, bits[written_at], bits)
    ids = np.stack([instructions, bits], axis=1).reshape(-1)
    targets = np.full(2 * length, NO_TARGET)
    targets[::2][reads] = bits[reads]
    return Written(ids, targets)


ENTRIES = (
    describe_probe("parity", "is the number of ones so far even or odd?", load_parity),
    describe_probe("s3", "the product so far of permutations of three things", load_s3),
    describe_probe("flip-flop", "read the bit that was last written, among bits to ignore", load_flip_flop),
)
