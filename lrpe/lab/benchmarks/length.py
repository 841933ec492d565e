"""``lrpe bench length``: time and memory as the number of tokens doubles, against SDPA and the n × n matrix."""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from statistics import linear_regression

import torch
from torch import Tensor

from lrpe.attention.choices import Causal, Quadratic, Summation
from lrpe.attention.feature_map import elu_plus_one
from lrpe.attention.functional import linear_attention
from lrpe.attention.normalizer import PlainDelta
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.encodings.family import encoding
from lrpe.errors import require
from lrpe.lab.aligned import in_columns
from lrpe.lab.benchmarks.agreement import Agreement, check_agreement, largest_difference
from lrpe.lab.benchmarks.device import on_cuda, place
from lrpe.lab.benchmarks.length_points import Point, Sizes, draw, judge_shares, measure_shared, point_of
from lrpe.lab.benchmarks.lines import Line, judge
from lrpe.lab.benchmarks.measurement import Measurement
from lrpe.lab.benchmarks.memory import peak_resident
from lrpe.lab.benchmarks.peers import Sum, softmax_causal, softmax_written_out
from lrpe.lab.benchmarks.process import read_settings
from lrpe.lab.benchmarks.timing import clock, no_garbage_collection, start_share, warn_if_busy
from lrpe.lab.stamp import stamp

_TIME_GOAL, _MEMORY_GOAL, _MILLION_GOAL = 2.2, 2.1, 14.0  # time and memory per doubling; GiB for a million tokens
SEGMENTS, ONE_CALL, _SOFTMAX, _MATRIX = "linear, in segments", "linear, in one call", "SDPA", "linear, by its matrix"
_PHI, _NORMALIZER = elu_plus_one, PlainDelta()


FULL = Sizes(heads=8, dim=64, first=9, judged=14, one_call=18, square=13, segment=14, seconds=0.2)
QUICK = Sizes(heads=2, dim=16, first=6, judged=7, one_call=8, square=7, segment=6, seconds=0.01)
_QUICK_LONGEST = 8


@dataclass(frozen=True)
class _LengthResult(Measurement):
    benchmark = "length"
    heads: int
    dim: int
    segment: int
    points: list[Point]
    exponents: dict[str, float]
    memory_exponents: dict[str, float]
    agreements: list[Agreement]
    processor_share: float
    processes: int = 1  # that share the row; if several, the sides are one process and these

    def title(self) -> list[str]:
        about = [
            f"A causal forward pass, {self.heads} heads of {self.dim}, Type 2, PlainDelta, float32: "
            "time, and memory above the process's baseline, including q, k and v.",
        ]
        if self.processes > 1:
            return [*about, f"One row on one process, and shared by {self.processes}. Medians of {self.rounds} rounds."]
        return [
            *about,
            f"Medians of {self.rounds} interleaved rounds. Segments have {self.segment} tokens and pass on the state.",
        ]

    def tables(self) -> list[str]:
        return [_point_table(self), *super().tables()]

    def remarks(self) -> list[str]:
        if self.processes > 1:
            return [
                "Memory is that of the process that needs most; freed memory returns to the system at once, which",
                "takes time. Times are wall-clock times. Before timing, the processes gave the outputs of one to a "
                f"relative {largest_difference(self.agreements):.0e}.",
            ]
        return [
            "Before timing, each side gave the outputs and gradients of its n × n matrix to a relative "
            f"{largest_difference(self.agreements):.0e}.",
            "SDPA is softmax attention. Exponents are fitted to the four greatest lengths of each side.",
            *warn_if_busy(self.processor_share),
        ]


@torch.no_grad()
def measure(quick: bool = False, rounds: int | None = None, longest: int = 17, processes: int = 1) -> _LengthResult:
    """Measure a causal forward pass with Type 2 up to 2^longest tokens; ``quick`` stops at a few hundred.

    With several processes, measure one row on one process and shared by these instead.
    """
    sizes, longest = (QUICK, _QUICK_LONGEST) if quick else (FULL, longest)
    rounds, marks = rounds or (2 if quick else 5), stamp()
    if processes > 1:
        return _measure_shared(quick, rounds, longest, processes, sizes)
    agreements = list(check(sizes))
    sides, measure_share = _sides_of(sizes, longest), start_share()
    memory = {(side, n): measure_memory(side, n, run, sizes) for side, n, run in sides}
    seconds = measure_seconds(sides, rounds, sizes)
    points = [point_of(side, n, seconds[side, n], memory[side, n]) for side, n, _ in sides]
    lines = [line for name in (SEGMENTS, ONE_CALL) for line in judge_doublings(name, points, sizes)]
    return _LengthResult(
        quick=quick,
        rounds=rounds,
        settings=read_settings(),
        stamp=marks,
        lines=[*lines, *judge_million(points)],
        heads=sizes.heads,
        dim=sizes.dim,
        segment=2**sizes.segment,
        points=points,
        exponents=exponents_of(points, "seconds"),
        memory_exponents=exponents_of(points, "bytes"),
        agreements=agreements,
        processor_share=measure_share(),
    )


def _measure_shared(quick: bool, rounds: int, longest: int, processes: int, sizes: Sizes) -> _LengthResult:
    require(
        processes.bit_count() == 1, f"processes must be a power of two, as the lengths are; got processes={processes}."
    )
    require(not on_cuda(), "processes must be 1 on a GPU: with more, this benchmark starts processes without GPUs.")
    marks, powers = stamp(), range(max(sizes.first, longest - 2), longest + 1)
    points, agreements = measure_shared([2**power for power in powers], processes, sizes, rounds)
    return _LengthResult(
        quick=quick,
        rounds=rounds,
        settings=read_settings(),
        stamp=marks,
        lines=list(judge_shares(points, processes)),
        heads=sizes.heads,
        dim=sizes.dim,
        segment=0,
        points=points,
        exponents=exponents_of(points, "seconds"),
        memory_exponents=exponents_of(points, "bytes"),
        agreements=agreements,
        processor_share=1.0,
        processes=processes,
    )


def _sides_of(sizes: Sizes, longest: int) -> list[tuple[str, int, Sum]]:
    """Return (side, length, call) for each side at each of its lengths."""
    encode = place(encoding("type2", sizes.dim, seed=0))
    ends: list[tuple[str, int, Sum]] = [
        (SEGMENTS, longest, in_segments(encode, 2**sizes.segment)),
        (ONE_CALL, min(longest, sizes.one_call), _in_one_call(encode, Causal())),
        (_SOFTMAX, min(longest, sizes.square), softmax_causal),
        (_MATRIX, min(longest, sizes.square), _in_one_call(encode, Quadratic(causal=True))),
    ]
    return [(side, 2**power, run) for side, last, run in ends for power in range(sizes.first, last + 1)]


def in_segments(encode: PositionalEncoding, segment: int) -> Sum:
    """Attend segment by segment, passing on the state: memory beyond q, k, v and the output does not grow with n."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, state = torch.empty_like(v), None
        for start in range(0, q.shape[2], segment):
            cut = slice(start, start + segment)
            piece = (q[:, :, cut], k[:, :, cut], v[:, :, cut])
            out[:, :, cut], state = linear_attention(
                *piece, encode, _PHI, _NORMALIZER, summation=Causal(), decay=None, state=state
            )
        return out

    return attend


def _in_one_call(encode: PositionalEncoding, summation: Summation) -> Sum:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return linear_attention(q, k, v, encode, _PHI, _NORMALIZER, summation=summation, decay=None)[0]

    return attend


def check(sizes: Sizes) -> Iterator[Agreement]:
    """Check one call and short segments against the n × n sum, and SDPA against softmax written out."""
    encode = place(encoding("type2", sizes.dim, seed=0))
    x = torch.stack(draw(256, sizes))
    sides = {ONE_CALL: _in_one_call(encode, Causal()), SEGMENTS: in_segments(encode, 100)}
    matrix = _in_one_call(encode, Quadratic(causal=True))
    with torch.enable_grad():
        for name, side in sides.items():
            both = (lambda x, side=side: side(*x.unbind(0)), lambda x: matrix(*x.unbind(0)))
            yield check_agreement((name, _MATRIX), both, x, 1e-4, "outputs")
        both = (lambda x: softmax_causal(*x.unbind(0)), lambda x: softmax_written_out(*x.unbind(0), causal=True))
        yield check_agreement((_SOFTMAX, "its matrix"), both, x, 1e-4, "outputs")


def measure_memory(side: str, n: int, run: Sum, sizes: Sizes) -> int | None:
    """Return the smaller of two measurements: fragmentation can only add to the peak."""
    print(f"Measuring memory: {side}, {n} tokens.", file=sys.stderr, flush=True)
    held = [peak_resident(lambda: run(*draw(n, sizes))) for _ in range(2)]
    return min(filter(None, held), default=None)


def measure_seconds(
    sides: Sequence[tuple[str, int, Sum]], rounds: int, sizes: Sizes
) -> dict[tuple[str, int], list[float]]:
    """Time every side at every length once per round, in a random order."""
    seconds: dict[tuple[str, int], list[float]] = {(side, n): [] for side, n, _ in sides}
    with no_garbage_collection():
        for turn in range(rounds):
            print(f"Timing: round {turn + 1} of {rounds}.", file=sys.stderr, flush=True)
            for side, n, run in random.Random(turn).sample(sides, len(sides)):
                qkv = draw(n, sizes)
                seconds[side, n].append(_time_for(sizes.seconds, lambda run=run, qkv=qkv: run(*qkv)))
    return seconds


def _time_for(least: float, run: Callable[[], object]) -> float:
    """Return the seconds per call, over enough calls to take ``least`` seconds, after one warm-up call."""
    run()
    calls, start = 0, clock()
    while calls == 0 or clock() - start < least:
        run()
        calls += 1
    return (clock() - start) / calls


def exponents_of(points: Sequence[Point], field: str) -> dict[str, float]:
    """Return the fitted exponent of seconds or bytes for each side with at least two known values."""
    known: dict[str, list[tuple[int, float]]] = {point.side: [] for point in points}
    for point in points:
        if value := getattr(point, field):
            known[point.side].append((point.length, value))
    return {side: exponent(pairs) for side, pairs in known.items() if len(pairs) > 1}


def exponent(pairs: Sequence[tuple[int, float]]) -> float:
    """Return b in value ∝ n^b, fitted to the four greatest lengths."""
    longest = pairs[-4:]
    return linear_regression([log(n) for n, _ in longest], [log(value) for _, value in longest]).slope


def judge_doublings(side: str, points: Sequence[Point], sizes: Sizes) -> Iterator[Line]:
    judged = [point for point in points if point.side == side and point.length >= 2**sizes.judged]
    for shorter, longer in pairwise(judged):
        at = f"2^{shorter.length.bit_length() - 1} → 2^{longer.length.bit_length() - 1}"
        time, low, high = longer.seconds / shorter.seconds, longer.low / shorter.high, longer.high / shorter.low
        yield Line(f"time, {side}", at, _TIME_GOAL, judge(time, _TIME_GOAL), time, low, high, longer.seconds)
        if shorter.bytes and longer.bytes is not None:
            memory = longer.bytes / shorter.bytes
            yield Line(f"memory, {side}", at, _MEMORY_GOAL, judge(memory, _MEMORY_GOAL), memory)


def judge_million(points: Sequence[Point]) -> Iterator[Line]:
    for point in points:
        if point.side == SEGMENTS and point.length == 2**20 and point.bytes is not None:
            held = point.bytes / 2**30
            yield Line(
                "GiB for a million tokens, q, k and v counted", "2^20", _MILLION_GOAL, judge(held, _MILLION_GOAL), held
            )


def _point_table(result: _LengthResult) -> str:
    """Return a table with one row per length and, for each side, milliseconds and MiB."""
    names, lengths = list(result.exponents), sorted({point.length for point in result.points})
    points = {(point.side, point.length): point for point in result.points}
    header = ["tokens", *(f"{name}: {unit}" for name in names for unit in ("ms", "MiB"))]
    rows = [[str(n), *(cell for name in names for cell in cells(points.get((name, n))))] for n in lengths]
    fitted = ["∝ n^", *(slope(by, name) for name in names for by in (result.exponents, result.memory_exponents))]
    return in_columns(header, [*rows, fitted])


def slope(exponents: dict[str, float], side: str) -> str:
    return f"{exponents[side]:.2f}" if side in exponents else "–"


def cells(point: Point | None) -> tuple[str, str]:
    if point is None:
        return "–", "–"
    return f"{1000 * point.seconds:.4g}", "–" if point.bytes is None else f"{point.bytes / 2**20:.4g}"
