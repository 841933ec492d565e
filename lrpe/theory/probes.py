"""Positions and vectors on which the laws are measured: every position near 0, some far away, random vectors."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from operator import add
from typing import Any

import torch
from torch import Tensor

from lrpe.theory.rank_growth import as_matrix

Position = tuple[int, ...]  # one integer per axis
NEAR = 2048  # every position up to here is tested
FAR = 10**6  # for float64; float32 and lower precision are tested only up to NEAR
VECTORS = 3


@dataclass(frozen=True)
class Places:
    """Positions, and offsets between the two positions of a pair."""

    near: tuple[Position, ...]  # all up to NEAR; on a grid those on the axes and around 0
    far: tuple[Position, ...]
    offsets: tuple[Position, ...]
    far_offsets: tuple[Position, ...]

    @property
    def zero(self) -> Position:
        return self.near[0]

    @property
    def units(self) -> list[Position]:
        """Return one step along each axis."""
        axes = range(len(self.zero))
        return [tuple(int(a == axis) for a in axes) for axis in axes]

    @cached_property
    def pairs(self) -> dict[Position, list[tuple[Position, Position]]]:
        """Return the pairs (s, s + c) of each offset c: all near ones if c is small, else those of a few positions."""
        known, some = set(self.near), (*self.near[:: max(len(self.near) // 16, 1)], *self.far)
        near = {c: [(s, t) for s in self.near if (t := _plus(s, c)) in known] for c in self.offsets}
        return {c: near.get(c, []) + [(s, _plus(s, c)) for s in some] for c in (*self.offsets, *self.far_offsets)}

    def every(self) -> list[Position]:
        """Return every position of a pair, once."""
        return list(dict.fromkeys(s for pairs in self.pairs.values() for pair in pairs for s in pair))


def draw_places(axes: int, near: int, reach: int, from_zero: bool, seed: int) -> Places:
    """Return every position up to ``near``, and random ones up to ``reach``, none negative if ``from_zero``."""
    source = random.Random(seed)

    def draw(size: int) -> Position:
        return tuple(source.randint(0 if from_zero else -size, size) for _ in range(axes))

    zero, units = (0,) * axes, [tuple(int(a == axis) for a in range(axes)) for axis in range(axes)]
    offsets = dict.fromkeys([zero, *units, draw(4), draw(16), draw(64), draw(near)])
    every = _near(axes, 0 if from_zero else -near, near)
    if reach <= near:
        return Places(every, (), tuple(offsets), ())
    corners = [(size,) * axes for size in ((reach,) if from_zero else (-reach, reach))]
    far = [*corners, *(draw(10**k) for k in (4, 5, 6) for _ in range(8) if 10**k <= reach)]
    return Places(every, tuple(dict.fromkeys(far)), tuple(offsets), (draw(10**4), draw(reach)))


def _near(axes: int, least: int, most: int) -> tuple[Position, ...]:
    """Return 0, then every position from least to most; on a grid those of each axis, and a box around 0."""
    zero = (0,) * axes
    lines = [(*zero[:axis], s, *zero[axis + 1 :]) for axis in range(axes) for s in range(least, most + 1)]
    half = {1: 0, 2: 8, 3: 3}.get(axes, 1)
    box = product(range(max(-half, least), half + 1), repeat=axes)
    return tuple(dict.fromkeys([zero, *lines, *box]))


def _plus(s: Position, t: Position) -> Position:
    return tuple(map(add, s, t))


def unit_vectors(dim: int, seed: int, count: int = VECTORS) -> Tensor:
    """Return random float64 vectors of length 1: (count, dim)."""
    drawn = torch.randn(count, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return drawn / drawn.norm(dim=-1, keepdim=True)


@dataclass(frozen=True)
class Images:
    """M_s x for the positions at which M is known, and each of the vectors: (positions, ..., features, vectors)."""

    rows: dict[Position, int]
    values: Tensor

    def products(self, others: "Images", pairs: Sequence[tuple[Position, Position]]) -> Tensor:
        """Return (M_s x)ᴴ (M_t y) for each pair of positions and of vectors: (pairs, ..., vectors, vectors)."""
        known = [(self.rows[s], others.rows[t]) for s, t in pairs if s in self.rows and t in others.rows]
        left, right = (
            torch.tensor(side, dtype=torch.long) for side in (zip(*known, strict=True) if known else ((), ()))
        )
        return self.values[left].mH @ others.values[right]

    def at(self, positions: Iterable[Position]) -> Tensor:
        return self.values[[self.rows[s] for s in positions if s in self.rows]]


Look = Callable[[list[Position]], Images]  # a subject, applied to the same vectors at each position


def images_of_factor(M: Callable[[int], Any], vectors: Tensor) -> Look:
    """Return images under a function from a position to a matrix: none past the end of a table, inf on overflow."""
    shape = as_matrix(M(0)).shape

    def matrix(s: int) -> Tensor | None:
        try:
            return as_matrix(M(s))
        except LookupError:
            return None
        except OverflowError:
            return torch.full(shape, torch.inf, dtype=torch.complex128)

    def look(positions: list[Position]) -> Images:
        found = {s: found for s in positions if (found := matrix(s[0])) is not None}
        columns = vectors.mT.to(torch.complex128)
        values = torch.stack([M_s @ columns for M_s in found.values()]) if found else torch.zeros(0, 1, len(vectors))
        return Images({s: row for row, s in enumerate(found)}, values)

    return look


def images_of_matrix(columns: Callable[[Position], Tensor]) -> Look:
    """Return images whose columns a function gives for each position."""

    def look(positions: list[Position]) -> Images:
        values = torch.stack([columns(s) for s in positions])
        return Images({s: row for row, s in enumerate(positions)}, values)

    return look


def images_of_map(f: Callable[[Tensor, int], Tensor], vectors: Tensor) -> Look:
    """Return images under a function of a vector and a position."""

    def columns(s: int) -> Tensor:
        return torch.stack([f(vector, s).detach() for vector in vectors], -1)

    return images_of_factor(columns, torch.eye(len(vectors), dtype=torch.float64))


def images_of_rows(encode: Callable[[Tensor, Tensor], Tensor], vectors: Tensor, axes: int, heads: int | None) -> Look:
    """Return images under a function of rows (..., n, d) and positions (n,) or (n, axes), in one call."""

    @torch.no_grad()
    def look(positions: list[Position]) -> Images:
        where = torch.tensor(positions if axes > 1 else [s[0] for s in positions])
        rows = vectors[:, None, :] if heads is None else vectors[:, None, None, :].expand(-1, heads, -1, -1)
        encoded = encode(rows.expand(*rows.shape[:-2], len(positions), -1), where)  # (vectors, [heads,] n, features)
        encoded = encoded.to(torch.complex128 if encoded.is_complex() else torch.float64)
        return Images({s: row for row, s in enumerate(positions)}, encoded.movedim(-2, 0).movedim(1, -1))

    return look
