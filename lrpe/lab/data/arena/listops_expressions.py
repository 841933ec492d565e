"""ListOps expressions: encode, decode, evaluate, and generate with the distribution of Long-Range Arena's generator.

A node is an operator with probability 1/4 and a digit otherwise; at the maximum depth it is always a digit. The number
of an operator's arguments is uniform in 2 ... ``max_args``. An expression is kept if its length is strictly between the
limits. Whole forests are drawn at once, level by level, and only the kept trees are written out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import chain, count, pairwise
from typing import NamedTuple

import numpy as np

from lrpe.errors import LrpeError, require
from lrpe.lab.data.arena.sequences import Row
from lrpe.lab.data.jobs import in_parallel

SYMBOLS = (*"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]")
_FIRST_OPERATOR, _CLOSE, PADDING = 10, 14, 15
_IDS = {symbol.encode(): i for i, symbol in enumerate(SYMBOLS)}


def encode(text: bytes) -> bytes:
    """Return the ids of an expression, one byte each, without parentheses."""
    try:
        return bytes([_IDS[symbol] for symbol in text.translate(None, b"()").split()])
    except KeyError as error:
        known = " ".join(SYMBOLS)
        raise LrpeError(f"A ListOps expression must consist of {known}; got {error.args[0][:40]!r}.") from None


def decode(ids: Sequence[int]) -> str:
    return " ".join(SYMBOLS[i] for i in ids)


def evaluate(ids: Sequence[int]) -> int:
    """Return the value of an expression.

    >>> evaluate(encode(b"[MAX 2 9 [MIN 4 7 ] 0 ]"))
    9
    """
    outside: list[tuple[int, list[int]]] = []  # open operators, each with the arguments that precede it
    arguments: list[int] = []
    for symbol in ids:
        if symbol < _FIRST_OPERATOR:
            arguments.append(symbol)
        elif symbol < _CLOSE:
            outside.append((symbol, arguments))
            arguments = []
        else:
            require(
                bool(outside and arguments),
                "A closing bracket must end an operator with arguments; got one that does not.",
            )
            operator, before = outside.pop()
            before.append(_OPERATIONS[operator](arguments))
            arguments = before
    require(
        not outside and len(arguments) == 1,
        lambda: f"An expression must be one value; got {len(arguments)}, and {len(outside)} unclosed brackets.",
    )
    return arguments[0]


def _median(values: list[int]) -> int:
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) // 2


_OPERATIONS = {10: min, 11: max, 12: _median, 13: lambda values: sum(values) % 10}


_OPERATOR_SHARE = 0.25
BLOCK = 256  # expressions per job; each block has its own seed, so the number of processes does not matter
_TREES = 4096  # per forest
FORESTS = 500  # drawn for a block before giving up


@dataclass(frozen=True)
class Grammar:
    """The size of an expression: min_length < symbols < max_length, parentheses not counted."""

    max_depth: int = 10
    max_args: int = 10
    min_length: int = 500
    max_length: int = 2000

    def __post_init__(self) -> None:
        require(
            self.max_depth >= 1 and self.max_args >= 2 and 0 <= self.min_length < self.max_length - 1,
            f"max_depth ≥ 1, max_args ≥ 2 and 0 ≤ min_length < max_length - 1 are required; got {self}.",
        )


class _Level(NamedTuple):
    """The nodes at one depth, tree by tree. The arguments of its operators, in order, form the next level."""

    tree: np.ndarray
    symbol: np.ndarray
    arity: np.ndarray  # 0 for a digit


def generate(total: int, seed: int, grammar: Grammar, processes: int | None = None) -> Iterator[Row]:
    """Yield ``total`` distinct expressions with their values, the same for any number of processes."""
    draw, blocks = partial(_draw_block, seed, grammar), -(-total // BLOCK)
    seen: set[bytes] = set()
    for rows in chain(in_parallel(draw, range(blocks), "ListOps", processes, "blocks"), map(draw, count(blocks))):
        before = len(seen)
        for label, (ids,) in rows:
            key = blake2b(ids, digest_size=16).digest()
            if len(seen) < total and key not in seen:
                seen.add(key)
                yield label, (ids,)
        if len(seen) >= total:
            return
        require(len(seen) > before, f"{grammar} has too few expressions: found {len(seen)} of {total}. Widen it.")


def _draw_block(seed: int, grammar: Grammar, number: int) -> list[Row]:
    rng = np.random.default_rng((seed, number))
    rows: list[Row] = []
    for _ in range(FORESTS):
        rows += [(evaluate(ids), (ids,)) for ids in _draw_expressions(rng, grammar)]
        if len(rows) >= BLOCK:
            return rows[:BLOCK]
    raise LrpeError(f"{grammar} is met by {len(rows)} of {FORESTS * _TREES:,} random expressions. Widen it.")


def _draw_expressions(rng: np.random.Generator, grammar: Grammar) -> list[bytes]:
    """Draw a forest and return the expressions that are neither too short nor too long."""
    levels, lengths = _grow_forest(rng, grammar)
    kept = (grammar.min_length < lengths) & (lengths < grammar.max_length)
    if not kept.any():
        return []
    chosen = [_Level(*(column[kept[level.tree]] for column in level)) for level in levels]
    edges = np.cumsum([0, *lengths[kept]])
    flat = _write_out([level for level in chosen if len(level.tree)], edges).tobytes()
    return [flat[start:stop] for start, stop in pairwise(edges)]


def _grow_forest(rng: np.random.Generator, grammar: Grammar) -> tuple[list[_Level], np.ndarray]:
    """Return the levels of many trees and the length of each; a tree that is already too long stops growing."""
    tree, lengths, levels = np.arange(_TREES), np.zeros(_TREES, dtype=np.int64), []
    for depth in range(1, grammar.max_depth + 1):
        opens = (rng.random(len(tree)) < _OPERATOR_SHARE) & (depth < grammar.max_depth)
        symbol = np.where(opens, rng.integers(_FIRST_OPERATOR, _CLOSE, len(tree)), rng.integers(10, size=len(tree)))
        arity = np.where(opens, rng.integers(2, grammar.max_args + 1, len(tree)), 0)
        levels.append(_Level(tree, symbol, arity))
        lengths += np.bincount(tree, minlength=_TREES) + np.bincount(tree[opens], minlength=_TREES)
        tree = np.repeat(tree, arity)
        tree = tree[lengths[tree] < grammar.max_length]
    return levels, lengths


def _write_out(levels: list[_Level], edges: np.ndarray) -> np.ndarray:
    """Concatenate all trees in reading order: compute sizes from the leaves up, then positions from the roots down."""
    sizes = [np.ones(len(levels[-1].tree), dtype=np.int64)]
    for level in reversed(levels[:-1]):
        size = np.ones(len(level.tree), dtype=np.int64)
        operators = level.arity > 0
        size[operators] = 2 + np.add.reduceat(sizes[0], _first_arguments(level))
        sizes.insert(0, size)
    flat, starts = np.empty(edges[-1], dtype=np.uint8), edges[:-1]
    for i, level in enumerate(levels):
        operators = level.arity > 0
        flat[starts] = level.symbol
        flat[(starts + sizes[i] - 1)[operators]] = _CLOSE
        if i + 1 < len(levels):
            before = np.cumsum(sizes[i + 1]) - sizes[i + 1]
            offset = starts[operators] + 1 - before[_first_arguments(level)]
            starts = before + np.repeat(offset, level.arity[operators])
    return flat


def _first_arguments(level: _Level) -> np.ndarray:
    """Return the index in the next level of each operator's first argument."""
    arity = level.arity[level.arity > 0]
    return np.cumsum(arity) - arity
