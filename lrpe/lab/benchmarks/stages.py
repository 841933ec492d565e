"""A stage of ``lrpe bench attention``: all sides at one shape, forward or forward + backward, timed in turns."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lrpe.attention.engines.choice import engine_used
from lrpe.lab.aligned import in_columns
from lrpe.lab.benchmarks.limit import PRODUCT_FLOPS, Shape, matrix_product
from lrpe.lab.benchmarks.lines import Call, Line, forward_and_backward, line_from, milliseconds
from lrpe.lab.benchmarks.peers import Sum
from lrpe.lab.benchmarks.sides import Side, draw
from lrpe.lab.benchmarks.turns import Turns, take_turns

LIMIT = "limit"
_GEMM = "matrix product"


@dataclass(frozen=True)
class Stage:
    """The times of all sides, the engine of each of ours, and the limit as a number of matrix products."""

    summation: str  # "causal" or "bidirectional"
    shape: Shape
    backward: bool
    turns: Turns
    engines: dict[str, str]
    products: float

    @property
    def passes(self) -> str:
        return _pass_name(self.backward)

    def compare(self, row: str, ours: str, theirs: str, goal: float | None = None) -> Line:
        """Return the line of ours ÷ theirs, one of the sides or the limit."""
        peer, units = (_GEMM, self.products) if theirs == LIMIT else (theirs, 1.0)
        ratio = self.turns.ratio(ours, peer, units)
        title, at = f"{self.summation} {self.passes}, {row}", describe_shape(self.shape)
        return line_from(ratio, title, at, goal, self.turns.processor_share, self.engines[ours])

    @property
    def gemm_rate(self) -> float:
        """The flops per second of the matrix product."""
        return PRODUCT_FLOPS / self.turns.median(_GEMM)

    def times(self) -> list["SideTime"]:
        """Return the median of every side, and the limit."""
        medians = {name: self.turns.median(name) for name in self.turns.seconds if name != _GEMM}
        medians[LIMIT] = self.products * self.turns.median(_GEMM)
        at = describe_shape(self.shape)
        return [
            SideTime(self.summation, self.passes, name, at, seconds, self.engines.get(name))
            for name, seconds in medians.items()
        ]


@dataclass(frozen=True)
class SideTime:
    """The median seconds of one side at one shape; ``engine`` is None for a peer and for the limit."""

    summation: str
    passes: str
    side: str
    at: str
    seconds: float
    engine: str | None


def run_stage(
    summation: str,
    shape: Shape,
    backward: bool,
    sides: Mapping[str, Side],
    peers: Mapping[str, Sum],
    flops: Callable[[Shape, bool], int],
    rounds: int,
) -> Stage:
    """Time our sides, the peers and a large matrix product in turns."""
    ours = {name: side.forward_and_backward() if backward else side.forward() for name, side in sides.items()}
    theirs = {name: _peer_call(compute, shape, backward) for name, compute in peers.items()}
    engines = {name: engine_used(call).engine for name, call in ours.items()}
    sizes = f"{describe_shape(shape)}: {len(ours) + len(theirs)} sides, {rounds} rounds"
    print(f"Timing {summation} {_pass_name(backward)}, {sizes}.", file=sys.stderr, flush=True)
    turns = take_turns({**ours, **theirs, _GEMM: matrix_product()}, rounds)
    return Stage(summation, shape, backward, turns, engines, flops(shape, backward) / PRODUCT_FLOPS)


def _peer_call(compute: Sum, shape: Shape, backward: bool) -> Call:
    qkv = draw(shape)
    if backward:
        return forward_and_backward(compute, *qkv)

    def run() -> Tensor:
        with torch.no_grad():
            return compute(*qkv)

    return run


def _pass_name(backward: bool) -> str:
    return "forward + backward" if backward else "forward"


def describe_shape(shape: Shape) -> str:
    return "×".join(map(str, shape))


def time_tables(times: Iterable[SideTime]) -> list[str]:
    """Return a table of milliseconds per summation and pass: a row per side, a column per shape."""
    groups: dict[str, list[SideTime]] = {}
    for time in times:
        groups.setdefault(f"{time.summation} {time.passes}, ms", []).append(time)
    return [_time_table(title, group) for title, group in groups.items()]


def _time_table(title: str, times: Sequence[SideTime]) -> str:
    shapes, sides = list(dict.fromkeys(time.at for time in times)), list(dict.fromkeys(time.side for time in times))
    sides = [*(side for side in sides if side != LIMIT), LIMIT]
    found = {(time.side, time.at): milliseconds(time.seconds) for time in times}
    engines = {time.side: time.engine or "–" for time in times}
    rows = [[side, engines[side], *(found.get((side, shape), "–") for shape in shapes)] for side in sides]
    return in_columns([title, "engine", *shapes], rows, left=2)
