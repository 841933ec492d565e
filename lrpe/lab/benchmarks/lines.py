"""A line of a benchmark table: our figure ÷ the peer's, the goal, and pass or short."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lrpe.lab.aligned import in_columns
from lrpe.lab.benchmarks.timing import Ratio, Timed, Timing, clock, interleave

Call = Callable[[], object]
_Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Line:
    """A figure and its goal: an upper bound, or a lower bound where higher is better.

    ``figure`` is None if the peer is not installed, ``goal`` if none is set.
    """

    row: str
    at: str
    goal: float | None
    verdict: str  # "pass", "short", "missing", or "" without a goal
    figure: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: float | None = None
    processor_share: float = 1.0
    better: _Better = "lower"
    engine: str | None = None  # that computed our side, where the benchmark asked

    def __str__(self) -> str:
        if self.figure is None:
            return "missing"
        if self.low is None or self.high is None:
            return digits(self.figure)
        return f"{digits(self.figure)} ({digits(self.low)}–{digits(self.high)})"


def digits(figure: float) -> str:
    return f"{figure:.2f}" if figure >= 0.3 else f"{figure:.3f}" if figure >= 0.02 else f"{figure:.4f}"


def judge(figure: float, goal: float | None, better: _Better = "lower") -> str:
    if goal is None:
        return ""
    return "pass" if (figure <= goal if better == "lower" else figure >= goal) else "short"


def missing_line(row: str, at: str, goal: float | None) -> Line:
    return Line(row, at, goal, "missing")


def time_beside(row: str, at: str, goal: float | None, ours: Call, theirs: Call, rounds: int) -> Line:
    """Time two calls in interleaved rounds and return ours ÷ theirs."""
    timing = interleave([Timed(row, ours)], theirs, rounds, calls_within(0.05, theirs))
    return line_of(timing, row, row, at, goal)


def line_of(timing: Timing, task: str, row: str, at: str, goal: float | None) -> Line:
    """Return the line of one of the timed calls."""
    return line_from(timing.ratios[task], row, at, goal, timing.processor_share)


def line_from(
    figure: Ratio, row: str, at: str, goal: float | None, share: float = 1.0, engine: str | None = None
) -> Line:
    verdict, times = judge(figure.ratio, goal), (figure.ratio, figure.low, figure.high, figure.seconds)
    return Line(row, at, goal, verdict, *times, share, engine=engine)


def collect(lines: Iterable[Line]) -> list[Line]:
    """Return the lines as a list, printing each to stderr as soon as it is measured."""
    collected = []
    for line in lines:
        print(f"{line.row}, {line.at}: {line}", file=sys.stderr, flush=True)
        collected.append(line)
    return collected


def calls_within(seconds: float, run: Call) -> int:
    """Return how many calls of ``run`` fit into that time, from 1 to 100."""
    run()
    start = clock()
    run()
    return max(1, min(100, int(seconds / (clock() - start))))


def forward_and_backward(compute: Callable[..., Tensor], *inputs: Tensor, learned: Sequence[Tensor] = ()) -> Call:
    """Return a call that gives the output and the gradients of inputs and parameters, for a fixed output gradient."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    g = torch.randn_like(compute(*leaves).detach(), memory_format=torch.contiguous_format)

    def run() -> tuple[Tensor, ...]:
        out = compute(*leaves)
        return out, *torch.autograd.grad(out, [*leaves, *learned], g)

    return run


def line_table(lines: Sequence[Line], judged: bool = True) -> str:
    """Return the lines as a table; without goals and verdicts unless ``judged``, with engines if any is known."""
    judge_columns = (lambda line: (goal_of(line), line.verdict)) if judged else (lambda line: ("–", ""))
    named = any(line.engine for line in lines)
    rows = []
    for line in lines:
        goal, verdict = judge_columns(line)
        engine = [line.engine or "–"] if named else []
        rows.append([line.row, line.at, goal, str(line), verdict, milliseconds(line.seconds), *engine])
    return in_columns(["", "at", "goal", "figure", "", "ours, ms", *(["engine"] if named else [])], rows, left=2)


def goal_of(line: Line) -> str:
    return "–" if line.goal is None else f"{'≤' if line.better == 'lower' else '≥'} {line.goal:g}"


def milliseconds(seconds: float | None) -> str:
    """Return seconds as milliseconds, with three digits or all those before the point."""
    if seconds is None:
        return "–"
    return f"{1000 * seconds:.3g}" if seconds < 0.9995 else f"{1000 * seconds:.0f}"
