"""Interleaved rounds: every task beside its unit, so that a slow minute of the machine slows both."""

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter, process_time

import torch

from lrpe.errors import require

_ALONE = 0.95  # a process with less of its processor than this was disturbed


@dataclass(frozen=True)
class Timed:
    """Something to time. Its figure is in units of ``units`` runs of the unit that it is timed beside."""

    name: str
    run: Callable[[], object]
    units: float = 1.0


@dataclass(frozen=True)
class Ratio:
    """The median over the rounds of time ÷ unit, its quartiles, and the median of the time itself."""

    ratio: float
    low: float
    high: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.ratio:.2f} ({self.low:.2f}–{self.high:.2f})"

    def inverse(self) -> "Ratio":
        """Unit ÷ time: a speed, of which more is better."""
        return Ratio(1 / self.ratio, 1 / self.high, 1 / self.low, self.seconds)


@dataclass(frozen=True)
class Timing:
    """A figure for each task, and the share of its processor that the process had: below 1 if others wanted it too."""

    ratios: dict[str, Ratio]
    processor_share: float


def interleave(
    tasks: Sequence[Timed], unit: Callable[[], object], rounds: int, calls: int = 3, before: int = 1
) -> Timing:
    """Time every task once a round, in an order drawn anew, with the unit right before it.

    A task is called ``calls`` times, after ``before`` calls that are not counted.
    """
    require(rounds >= 1 and calls >= 1, f"Timing takes one round and one call or more; got {rounds} and {calls}.")
    names = [task.name for task in tasks]
    require(len(set(names)) == len(names), f"Each task has a name of its own; got {names}.")
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    start, start_busy = perf_counter(), process_time()
    with no_garbage_collection():
        for turn in range(-1, rounds):  # round -1 warms everything up and counts for nothing
            for task in random.Random(turn).sample(tasks, len(tasks)):
                unit_seconds, seconds = (_time_calls(run, calls, before) for run in (unit, task.run))
                if turn >= 0:
                    samples[task.name].append((seconds / (task.units * unit_seconds), seconds))
    share = (process_time() - start_busy) / (perf_counter() - start)
    return Timing({name: summarise(pairs) for name, pairs in samples.items()}, share)


def warn_if_busy(processor_share: float) -> list[str]:
    """A sentence if the machine was busy, and nothing if it was not."""
    if processor_share >= _ALONE:
        return []
    share = f"{processor_share:.0%}"
    return [f"The machine was busy: this process had {share} of its processor, so the figures are rough."]


def _time_calls(run: Callable[[], object], calls: int, before: int) -> float:
    """Seconds a call, after some that are not counted: what ran before has filled the caches with its own."""
    for _ in range(before):
        run()
    start = clock()
    for _ in range(calls):
        run()
    return (clock() - start) / calls


def clock() -> float:
    """Seconds. On one thread they are those that this process ran: the clock stands still while another runs."""
    return process_time() if torch.get_num_threads() == 1 else perf_counter()


def summarise(pairs: Sequence[tuple[float, float]]) -> Ratio:
    low, middle, high = quartiles([ratio for ratio, _ in pairs])
    return Ratio(middle, low, high, median(seconds for _, seconds in pairs))


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper one."""
    low, middle, high = quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else list(samples) * 3
    return low, middle, high


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Python's garbage collector stays out of the timings."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
