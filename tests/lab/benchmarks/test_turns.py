import gc

import pytest

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks.turns import Turns, take_turns


class Clock:
    """A clock that moves only when a call takes its time."""

    def __init__(self):
        self.seconds, self.log = 0.0, []

    def __call__(self) -> float:
        return self.seconds

    def task(self, name: str, seconds: float):
        def run():
            self.log.append(name)
            self.seconds += seconds

        return run


def test_every_call_takes_its_turn_in_every_round_and_a_short_one_is_repeated():
    clock = Clock()
    turns = take_turns({"long": clock.task("long", 1.0), "short": clock.task("short", 0.02)}, 3, clock)
    assert turns.seconds == {"long": [1.0] * 3, "short": pytest.approx([0.02] * 3)}
    assert clock.log.count("long") == 1 + 3
    assert clock.log.count("short") == 2 + 3 * (1 + 3)  # to count; then one to warm up and three that count


def test_a_ratio_is_taken_within_each_round():
    turns = Turns({"ours": [1.0, 20.0, 3.0], "theirs": [2.0, 40.0, 4.0]}, 1.0)  # the second round was slow for both
    assert (turns.ratio("ours", "theirs").ratio, turns.ratio("ours", "theirs").high) == (0.5, 0.625)
    assert turns.ratio("ours", "theirs", units=0.5).ratio == 1.0
    assert turns.median("ours") == 3.0


def test_no_garbage_is_collected_while_calls_take_turns():
    states = []
    take_turns({"a": lambda: states.append(gc.isenabled())}, 1)
    assert not any(states[2:])  # the first two count the calls
    assert gc.isenabled()


def test_no_rounds_are_refused():
    with pytest.raises(LrpeError, match="rounds must be at least 1; got rounds=0"):
        take_turns({"a": int}, 0)
