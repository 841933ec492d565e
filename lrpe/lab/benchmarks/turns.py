"""Time several calls in turns, and compare any two of them within each round."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from lrpe.errors import require
from lrpe.lab.benchmarks.device import on_cuda
from lrpe.lab.benchmarks.lines import Call
from lrpe.lab.benchmarks.timing import Ratio, clock, no_garbage_collection, start_share, summarise, time_by_events

_Clock = Callable[[], float]

_LEAST = 0.05  # seconds: a shorter call is repeated, because the clock would be a part of its time
_LONG = 0.5  # seconds: what a first call costs once is small beside a longer one, so its first time counts


@dataclass(frozen=True)
class Turns:
    """The seconds of every call in every round, and the process's share of its processor."""

    seconds: dict[str, list[float]]
    processor_share: float

    def ratio(self, ours: str, theirs: str, units: float = 1.0) -> Ratio:
        """Return ours ÷ (``units`` times theirs), with quartiles over the rounds."""
        pairs = zip(self.seconds[ours], self.seconds[theirs], strict=True)
        return summarise([(mine / (units * other), mine) for mine, other in pairs])

    def median(self, name: str) -> float:
        return median(self.seconds[name])


def take_turns(calls: Mapping[str, Call], rounds: int, now: _Clock = clock) -> Turns:
    """Time every call once per round, in a random order; a short one is repeated for a twentieth of a second.

    A slow peer is timed once per round, not once for every call that it is compared with, as ``interleave`` does.
    """
    require(rounds >= 1, f"rounds must be at least 1; got rounds={rounds}.")
    counts = {name: _count_calls(run, now) for name, run in calls.items()}  # which also warms up
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    measure_share = start_share()
    with no_garbage_collection():
        for turn in range(rounds):
            for name in random.Random(turn).sample(list(calls), len(calls)):
                if counts[name] > 1:  # the caches hold another call's data, which matters for a short call only
                    calls[name]()
                seconds[name].append(_time_calls(calls[name], counts[name], now))
    return Turns(seconds, measure_share())


def _count_calls(run: Call, now: _Clock) -> int:
    """Return how many calls fill ``_LEAST`` seconds, from 1 to 100."""
    first = _time_calls(run, 1, now)
    again = first if first > _LONG else _time_calls(run, 1, now)
    return max(1, min(100, int(_LEAST / max(again, 1e-9)) + 1 if again < _LEAST else 1))


def _time_calls(run: Call, calls: int, now: _Clock) -> float:
    """Return the seconds per call."""
    if on_cuda():
        return time_by_events(run, calls)
    start = now()
    for _ in range(calls):
        run()
    return (now() - start) / calls
