import gc

import pytest

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks.timing import Ratio, Timed, interleave, summarise


def test_a_round_takes_every_task_with_the_unit_before_it():
    log = []
    tasks = [Timed(name, lambda name=name: log.append(name)) for name in "abc"]
    timing = interleave(tasks, lambda: log.append("unit"), rounds=2, calls=1)
    assert set(timing.ratios) == set("abc")
    turns = [log[k : k + 4] for k in range(0, len(log), 4)]  # the unit twice, the task twice
    assert len(turns) == 3 * 3  # a round to warm up, and two that count
    assert all(turn[:2] == ["unit", "unit"] and turn[2] == turn[3] for turn in turns)
    assert all(sorted(turn[2] for turn in turns[k : k + 3]) == ["a", "b", "c"] for k in (0, 3, 6))


def test_calls_that_are_not_counted_may_be_left_out():
    log = []
    interleave([Timed("a", lambda: log.append("a"))], lambda: log.append("unit"), rounds=1, calls=2, before=0)
    assert log == ["unit", "unit", "a", "a"] * 2


def test_a_speed_is_the_inverse_of_a_time():
    assert Ratio(ratio=1.25, low=1.0, high=2.0, seconds=3.0).inverse() == Ratio(0.8, 0.5, 1.0, 3.0)


def test_a_figure_is_the_median_and_the_quartiles():
    figure = summarise([(3.0, 1.0), (1.0, 9.0), (2.0, 2.0), (100.0, 3.0), (2.5, 4.0)])
    assert (figure.ratio, figure.low, figure.high, figure.seconds) == (2.5, 2.0, 3.0, 3.0)
    assert str(figure) == "2.50 (2.00–3.00)"
    assert summarise([(2.0, 1.0)]).low == 2.0


def test_units_divide_the_figure(monkeypatch):
    seconds = iter(range(100))  # every look at the clock is a second later, so that a call of anything takes one
    monkeypatch.setattr("lrpe.lab.benchmarks.timing.clock", lambda: float(next(seconds)))
    timing = interleave([Timed("one", int), Timed("two", int, units=2)], int, rounds=3, calls=1)
    assert timing.ratios["one"].ratio == 1.0
    assert timing.ratios["two"].ratio == 0.5


def test_the_garbage_collector_is_left_as_it_was():
    states = []
    interleave([Timed("a", lambda: states.append(gc.isenabled()))], int, rounds=1)
    assert not any(states)
    assert gc.isenabled()


def test_two_tasks_of_one_name_are_refused():
    with pytest.raises(LrpeError, match="names of the timed calls must differ"):
        interleave([Timed("a", int), Timed("a", int)], int, rounds=1)
    with pytest.raises(LrpeError, match="rounds and calls must be at least 1; got rounds=0"):
        interleave([Timed("a", int)], int, rounds=0)
