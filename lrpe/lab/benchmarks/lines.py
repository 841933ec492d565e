"""A line of a speed table: us ÷ a peer, the goal, and pass or short."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lrpe.lab.aligned import in_columns
from lrpe.lab.benchmarks.timing import Ratio, Timed, Timing, clock, interleave

Call = Callable[[], object]
Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Line:
    """A figure that should not exceed its goal, or should reach it where higher is better.

    There is no figure if the peer is missing, and no goal if none was set.
    """

    row: str
    at: str
    goal: float | None
    verdict: str  # pass, short, missing; or nothing, if there is no goal
    figure: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: float | None = None
    processor_share: float = 1.0
    better: Better = "lower"

    def __str__(self) -> str:
        if self.figure is None:
            return "missing"
        if self.low is None or self.high is None:
            return digits(self.figure)
        return f"{digits(self.figure)} ({digits(self.low)}–{digits(self.high)})"


def digits(figure: float) -> str:
    return f"{figure:.2f}" if figure >= 0.3 else f"{figure:.3f}" if figure >= 0.02 else f"{figure:.4f}"


def judge(figure: float, goal: float | None, better: Better = "lower") -> str:
    if goal is None:
        return ""
    return "pass" if (figure <= goal if better == "lower" else figure >= goal) else "short"


def missing_line(row: str, at: str, goal: float) -> Line:
    return Line(row, at, goal, "missing")


def time_beside(row: str, at: str, goal: float | None, ours: Call, theirs: Call, rounds: int) -> Line:
    """Time the two sides beside each other."""
    timing = interleave([Timed(row, ours)], theirs, rounds, calls_within(0.05, theirs))
    return line_of(timing, row, row, at, goal)


def line_of(timing: Timing, task: str, row: str, at: str, goal: float | None) -> Line:
    """The line of one of the tasks that were timed."""
    return line_from(timing.ratios[task], row, at, goal, timing.processor_share)


def line_from(figure: Ratio, row: str, at: str, goal: float | None, share: float = 1.0) -> Line:
    verdict = judge(figure.ratio, goal)
    return Line(row, at, goal, verdict, figure.ratio, figure.low, figure.high, figure.seconds, share)


def collect(lines: Iterable[Line]) -> list[Line]:
    """The lines, each of them told on stderr as soon as it is measured."""
    found = []
    for line in lines:
        print(f"{line.row}, {line.at}: {line}", file=sys.stderr, flush=True)
        found.append(line)
    return found


def calls_within(seconds: float, run: Call) -> int:
    """How many calls of ``run`` fit into that time: 1 or more, and 100 at the most."""
    run()
    start = clock()
    run()
    return max(1, min(100, int(seconds / (clock() - start))))


def forward_and_backward(compute: Callable[..., Tensor], *inputs: Tensor, learned: Sequence[Tensor] = ()) -> Call:
    """The output, and the gradients of the inputs and of what is learned, for a fixed gradient of the output."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    g = torch.randn_like(compute(*leaves).detach(), memory_format=torch.contiguous_format)

    def run() -> tuple[Tensor, ...]:
        out = compute(*leaves)
        return out, *torch.autograd.grad(out, [*leaves, *learned], g)

    return run


def line_table(lines: Sequence[Line], judged: bool = True) -> str:
    """The lines as a table; where nothing is judged, as of tiny shapes, without goals and verdicts."""
    judge_columns = (lambda line: (goal_of(line), line.verdict)) if judged else (lambda line: ("–", ""))
    rows = []
    for line in lines:
        goal, verdict = judge_columns(line)
        rows.append([line.row, line.at, goal, str(line), verdict, milliseconds(line)])
    return in_columns(["", "at", "goal", "figure", "", "ours, ms"], rows, left=2)


def goal_of(line: Line) -> str:
    return "–" if line.goal is None else f"{'≤' if line.better == 'lower' else '≥'} {line.goal:g}"


def milliseconds(line: Line) -> str:
    return "–" if line.seconds is None else f"{1000 * line.seconds:.3g}"
