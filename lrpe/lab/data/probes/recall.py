"""Probes of recall: pairs of a key and a value, then keys whose values are asked for."""

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
    describe_probe,
    make_probe,
)
from lrpe.schema import Count, Range

_Keys = Annotated[int, Range(1, 10**5)]


def _name_symbols(keys: int) -> Symbols:
    """Name the ids: keys are 0 ... keys - 1, values follow, then filler and padding."""
    return Symbols((*(f"k{i}" for i in range(keys)), *(f"v{i}" for i in range(keys)), ".", "padding"))


def load_mqar(
    length: Length = 256,
    pairs: Count = 16,
    keys: _Keys = 4096,
    times: Times = 2,
    train: Size = 100_000,
    test: Size = 1_000,
) -> Dataset:
    """Multi-query associative recall (Arora et al., 2023): pairs, then every key once, at random places among filler.

    Args:
        length: tokens per sequence, of which the first 2 · pairs are the pairs.
        pairs: pairs of a key and its value; the keys are distinct.
        keys: number of keys, and of values.
        times: how many times as many pairs and tokens the split "longer" has.
        train, test: samples of the training split, and of each other.
    """
    require(
        3 * pairs <= length and times * pairs <= keys,
        f"length must be at least 3 · pairs, and keys at least times · pairs; got {length=}, {pairs=}, {keys=}, "
        f"{times=}.",
    )
    sizes = {"train": 1, "validation": 1, "longer": times}
    variants = {
        split: Variant(partial(_write_mqar, n * length, n * pairs, keys), 1 / (n * pairs)) for split, n in sizes.items()
    }
    recipe = {"length": length, "pairs": pairs, "keys": keys, "times": times}
    return make_probe("mqar", _name_symbols(keys), variants, train, test, **recipe)


def _write_mqar(length: int, pairs: int, keys: int, generator: np.random.Generator) -> Written:
    asked, values = generator.permutation(keys)[:pairs], generator.permutation(keys)[:pairs] + keys
    ids, targets = np.full(length, 2 * keys), np.full(length, NO_TARGET)
    ids[: 2 * pairs] = np.stack([asked, values], axis=1).reshape(-1)
    places = 2 * pairs + generator.permutation(length - 2 * pairs)[:pairs]
    ids[places], targets[places] = asked, values
    return Written(ids, targets)


def load_associative_recall(
    pairs: Count = 32, keys: _Keys = 64, times: Times = 2, train: Size = 100_000, test: Size = 1_000
) -> Dataset:
    """Pairs with distinct keys, then all keys in random order: recall that needs no position. It is a control."""
    require(times * pairs <= keys, f"keys must be at least times · pairs; got {keys=}, {times=}, {pairs=}.")
    variants = _recall_variants(pairs, 1, keys, times)
    recipe = {"pairs": pairs, "keys": keys, "times": times}
    return make_probe("associative-recall", _name_symbols(keys), variants, train, test, **recipe)


def load_duplicate_keys(
    pairs: Count = 16,
    repeats: Annotated[int, Range(2, 1000)] = 2,
    keys: _Keys = 64,
    times: Times = 2,
    train: Size = 100_000,
    test: Size = 1_000,
) -> Dataset:
    """Pairs in which every key comes ``repeats`` times, each time with another value; the answer is its last value.

    Args:
        pairs: number of distinct keys; there are pairs · repeats pairs.
        repeats: how often each key comes before it is asked for.
        keys: number of keys, and of values.
        times: how many times as many keys the split "longer" asks for.
        train, test: samples of the training split, and of each other.
    """
    require(
        times * pairs * repeats <= keys,
        f"keys must be at least times · pairs · repeats; got {keys=}, {times=}, {pairs=}, {repeats=}.",
    )
    variants = _recall_variants(pairs, repeats, keys, times)
    recipe = {"pairs": pairs, "repeats": repeats, "keys": keys, "times": times}
    return make_probe("duplicate-keys", _name_symbols(keys), variants, train, test, **recipe)


def _recall_variants(pairs: int, repeats: int, keys: int, times: int) -> dict[str, Variant]:
    sizes = {"train": pairs, "validation": pairs, "longer": times * pairs}
    return {split: Variant(partial(_write_recall, n, repeats, keys), 1 / (n * repeats)) for split, n in sizes.items()}


def _write_recall(pairs: int, repeats: int, keys: int, generator: np.random.Generator) -> Written:
    distinct = generator.permutation(keys)[:pairs]
    given = generator.permutation(np.repeat(distinct, repeats))
    values = generator.permutation(keys)[: pairs * repeats] + keys
    last = np.zeros(keys, dtype=np.int64)
    last[given] = values  # of several values of a key, numpy keeps the last
    asked = generator.permutation(distinct)
    ids = np.concatenate([np.stack([given, values], axis=1).reshape(-1), asked])
    return Written(ids, np.concatenate([np.full(2 * len(given), NO_TARGET), last[asked]]))


ENTRIES = (
    describe_probe("mqar", "multi-query associative recall: values of many keys, asked for far away", load_mqar),
    describe_probe("associative-recall", "values of distinct keys, which needs no position", load_associative_recall),
    describe_probe("duplicate-keys", "the last of several values of a key", load_duplicate_keys),
)
