"""The points of ``lrpe bench length``, and those of a row on one process and shared by several."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from lrpe.attention.functional import linear_attention
from lrpe.encodings.family import encoding
from lrpe.errors import require
from lrpe.lab.benchmarks.agreement import Agreement, difference
from lrpe.lab.benchmarks.device import place
from lrpe.lab.benchmarks.lines import Line, judge
from lrpe.lab.benchmarks.memory import peak_resident
from lrpe.lab.benchmarks.several import SHARE_GOAL, measure_on
from lrpe.lab.benchmarks.timing import quartiles
from lrpe.parallel import context, join_parts, own_part

_TOLERANCE = 1e-4  # relative to the largest output


@dataclass(frozen=True)
class Sizes:
    """Shapes and, as powers of two, the lengths: first, first judged, last per side, and of a segment."""

    heads: int
    dim: int
    first: int
    judged: int
    one_call: int
    square: int
    segment: int
    seconds: float  # the least time to spend on each side per round


@dataclass(frozen=True)
class Point:
    """One forward pass over ``length`` tokens: median time, quartiles, and memory (None if not reported)."""

    side: str
    length: int
    seconds: float
    low: float
    high: float
    bytes: int | None


def point_of(side: str, n: int, seconds: Sequence[float], held: int | None) -> Point:
    low, middle, high = quartiles(seconds)
    return Point(side, n, middle, low, high, held)


def draw(n: int, sizes: Sizes) -> list[Tensor]:
    """Return q, k and v of n tokens, a power of two: at most 4096 random tokens, repeated, because drawing is slow."""
    few = min(n, 4096)
    drawn = torch.randn(3, 1, sizes.heads, few, sizes.dim, generator=torch.Generator().manual_seed(0))
    return [x.repeat(1, 1, n // few, 1) for x in place(drawn)]


def side_of(count: int) -> str:
    """Return the name of the row that this many processes share."""
    return "linear, on 1 process" if count == 1 else f"linear, shared by {count} processes"


def measure_shared(
    lengths: Sequence[int], processes: int, sizes: Sizes, rounds: int
) -> tuple[list[Point], list[Agreement]]:
    """Return the time and memory at each length on one process and on each of several; the worst process counts."""
    points, agreements = [], []
    for n in lengths:
        for count in (1, processes):
            print(f"A forward pass over {n:,} tokens, {side_of(count)}.", file=sys.stderr, flush=True)
            answers = measure_on(count, _measure_here, count, n, sizes, rounds)
            points.append(max((point for point, _ in answers), key=lambda point: point.bytes or 0))
            agreements += [agreement for _, agreement in answers[:1] if agreement is not None]
    return points, agreements


def judge_shares(points: Sequence[Point], processes: int) -> Iterator[Line]:
    """Yield the memory per process of several ÷ that of one at each length; two have a goal."""
    one = {point.length: point.bytes for point in points if point.side == side_of(1)}
    goal = SHARE_GOAL if processes == 2 else None
    for point in points:
        whole = one[point.length]
        if point.side == side_of(processes) and point.bytes and whole:
            share = point.bytes / whole
            row, at = f"memory per process, of {processes} ÷ of 1", f"2^{point.length.bit_length() - 1}"
            yield Line(row, at, goal, judge(share, goal), share)


def _measure_here(count: int, n: int, sizes: Sizes, rounds: int) -> tuple[Point, Agreement | None]:
    agreement = _check(count, sizes) if count > 1 else None
    with torch.no_grad(), context() if count > 1 else nullcontext():
        held = [peak_resident(lambda: _attend(*draw(n // count, sizes))) for _ in range(2)]
        qkv, seconds = draw(n // count, sizes), []
        _attend(*qkv)
        for _ in range(rounds):
            start = perf_counter()  # not the processor's: waiting for another process counts
            _attend(*qkv)
            seconds.append(perf_counter() - start)
    return point_of(side_of(count), n, seconds, min(filter(None, held), default=None)), agreement


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    encode = encoding("type2", q.shape[-1], seed=0)
    return linear_attention(q, k, v, encode, decay=None)[0]


def _check(count: int, sizes: Sizes) -> Agreement:
    """Compare the output of a row that processes share with that of the whole row on one."""
    x = torch.stack(draw(256, sizes))
    with torch.no_grad():
        expected = _attend(*x)
        with context():
            found = join_parts(_attend(*own_part(x, 3)), 2)
    agreement = Agreement((side_of(count), side_of(1)), "outputs", difference(found, expected), 0.0, _TOLERANCE)
    require(
        agreement.outputs <= _TOLERANCE,
        f"The outputs of a row shared by {count} processes differ by {agreement.outputs:.1e} from those of one. Please "
        "report this.",
    )
    return agreement
