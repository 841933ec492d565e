"""Interleaved timing: each call is timed right after its unit, so that a slow minute of the machine slows both."""

import gc
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter, process_time

import torch

from lrpe.errors import require
from lrpe.lab.benchmarks.device import on_cuda

_ALONE = 0.95  # with a smaller share of its processor, a process was disturbed


@dataclass(frozen=True)
class Timed:
    """A call to time; its ratio is to ``units`` calls of the unit."""

    name: str
    run: Callable[[], object]
    units: float = 1.0


@dataclass(frozen=True)
class Ratio:
    """Time ÷ unit: the median over rounds, its quartiles, and the median time in seconds."""

    ratio: float
    low: float
    high: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.ratio:.2f} ({self.low:.2f}–{self.high:.2f})"

    def inverse(self) -> "Ratio":
        """Return unit ÷ time: a speed, where higher is better."""
        return Ratio(1 / self.ratio, 1 / self.high, 1 / self.low, self.seconds)


@dataclass(frozen=True)
class Timing:
    """A ratio per call, and the process's share of its processor: below 1 if other processes ran too.

    On a GPU the process waits for it, and the share is 1.
    """

    ratios: dict[str, Ratio]
    processor_share: float


def interleave(
    tasks: Sequence[Timed], unit: Callable[[], object], rounds: int, calls: int = 3, before: int = 1
) -> Timing:
    """Time every call once per round, in a random order, with the unit right before it.

    Each is called ``calls`` times, after ``before`` warm-up calls.
    """
    require(rounds >= 1 and calls >= 1, f"rounds and calls must be at least 1; got rounds={rounds}, calls={calls}.")
    names = [task.name for task in tasks]
    require(len(set(names)) == len(names), f"The names of the timed calls must differ; got {names}.")
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    measure_share = start_share()
    with no_garbage_collection():
        for turn in range(-1, rounds):  # round -1 warms up and is not counted
            for task in random.Random(turn).sample(tasks, len(tasks)):
                unit_seconds, seconds = (_time_calls(run, calls, before) for run in (unit, task.run))
                if turn >= 0:
                    samples[task.name].append((seconds / (task.units * unit_seconds), seconds))
    return Timing({name: summarise(pairs) for name, pairs in samples.items()}, measure_share())


def start_share() -> Callable[[], float]:
    """Return a function that gives the process's share of its processor since now; 1 on a GPU."""
    start, start_busy = perf_counter(), process_time()
    return lambda: 1.0 if on_cuda() else (process_time() - start_busy) / (perf_counter() - start)


def warn_if_busy(processor_share: float) -> list[str]:
    """Return a warning if the machine was busy, else nothing."""
    if processor_share >= _ALONE:
        return []
    share = f"{processor_share:.0%}"
    return [f"The machine was busy: this process got {share} of its processor, so the figures are rough."]


def _time_calls(run: Callable[[], object], calls: int, before: int) -> float:
    """Return the seconds per call, after ``before`` warm-up calls: the caches still hold the previous call's data."""
    for _ in range(before):
        run()
    if on_cuda():
        return time_by_events(run, calls)
    start = clock()
    for _ in range(calls):
        run()
    return (clock() - start) / calls


def time_by_events(run: Callable[[], object], calls: int) -> float:
    """Return the seconds per call on the GPU, from when it is idle to the end of its last kernel."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000 / calls


def clock() -> float:
    """Return seconds: processor time on one thread, which excludes other processes, else wall-clock time.

    On a GPU it is wall-clock time, after everything that was started there has ended.
    """
    if on_cuda():
        torch.cuda.synchronize()
        return perf_counter()
    return process_time() if torch.get_num_threads() == 1 else perf_counter()


def summarise(pairs: Sequence[tuple[float, float]]) -> Ratio:
    low, middle, high = quartiles([ratio for ratio, _ in pairs])
    return Ratio(middle, low, high, median(seconds for _, seconds in pairs))


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """Return the lower quartile, the median and the upper quartile."""
    low, middle, high = quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else list(samples) * 3
    return low, middle, high


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Switch Python's garbage collector off during timing."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
