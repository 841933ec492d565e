import pytest
import torch

from lrpe.encodings.family import encoding
from lrpe.errors import LrpeError
from lrpe.lab.benchmarks import length, length_points
from lrpe.lab.benchmarks.length import ONE_CALL, QUICK, SEGMENTS, Point
from tests.lab.training.forked import finish, fork


def point(side, n, held):
    return Point(side, n, 1.0, 1.0, 1.0, held)


def points(side, seconds, held, first=7):
    rows = zip(seconds, held, strict=True)
    return [length.point_of(side, 2 ** (first + k), [time], memory) for k, (time, memory) in enumerate(rows)]


def test_each_doubling_is_judged_in_time_and_in_memory():
    lines = list(length.judge_doublings(SEGMENTS, points(SEGMENTS, [1, 2, 5], [10, 25, 50]), QUICK))
    assert [(line.row.split(",")[0], line.at, line.verdict) for line in lines] == [
        ("time", "2^7 → 2^8", "pass"),
        ("memory", "2^7 → 2^8", "short"),
        ("time", "2^8 → 2^9", "short"),
        ("memory", "2^8 → 2^9", "pass"),
    ]


def test_lengths_below_the_first_that_counts_are_not_judged():
    assert not list(length.judge_doublings(SEGMENTS, points(SEGMENTS, [1, 9], [1, 9], first=6), QUICK))


def test_a_system_that_tells_no_memory_is_judged_by_time_alone():
    lines = list(length.judge_doublings(SEGMENTS, points(SEGMENTS, [1, 2], [None, None]), QUICK))
    assert [line.row for line in lines] == [f"time, {SEGMENTS}"]


@pytest.mark.parametrize(("gibibytes", "verdict"), [(13, "pass"), (15, "short")])
def test_a_million_tokens_have_a_limit(gibibytes, verdict):
    (line,) = length.judge_million([point(SEGMENTS, 2**20, gibibytes * 2**30)])
    assert (line.figure, line.verdict) == (gibibytes, verdict)
    assert not list(length.judge_million([point(SEGMENTS, 2**19, 2**30), point(ONE_CALL, 2**20, 2**30)]))


@pytest.mark.parametrize("power", [1, 2])
def test_the_exponent_of_a_power_is_found(power):
    assert length.exponent([(n, 3.0 * n**power) for n in (1, 2, 4, 8, 16)]) == pytest.approx(power)


def test_time_and_memory_have_an_exponent_each():
    found = points("a", [1, 4, 16], [1, 2, 4]) + points("b", [1, 2, 4], [None, None, 8])
    assert length.exponents_of(found, "seconds") == pytest.approx({"a": 2, "b": 1})
    assert length.exponents_of(found, "bytes") == pytest.approx({"a": 1})


def test_a_doubling_has_the_spread_of_both_its_ends():
    ends = [length.point_of(SEGMENTS, 2**7, [1, 2, 3], None), length.point_of(SEGMENTS, 2**8, [3, 4, 5], None)]
    (line,) = length.judge_doublings(SEGMENTS, ends, QUICK)
    assert (line.figure, line.low, line.high) == (2, 3.5 / 2.5, 4.5 / 1.5)


def test_softmax_that_is_not_what_it_says_is_not_timed(monkeypatch):
    softmax = length.softmax_causal
    monkeypatch.setattr(length, "softmax_causal", lambda *qkv: 1.01 * softmax(*qkv))
    monkeypatch.setattr(length, "measure_seconds", lambda *_: pytest.fail("timed all the same"))
    with pytest.raises(LrpeError, match="SDPA and its matrix differ"):
        length.measure(quick=True)


def test_segments_that_forget_the_state_are_not_timed(monkeypatch):
    attend = length.linear_attention
    monkeypatch.setattr(length, "linear_attention", lambda *a, state=None, **k: attend(*a, **k))
    monkeypatch.setattr(length, "measure_seconds", lambda *_: pytest.fail("timed all the same"))
    with pytest.raises(LrpeError, match="linear, in segments and linear, by its matrix differ"):
        length.measure(quick=True)


def test_segments_may_end_anywhere():
    qkv = length.draw(128, QUICK)
    encode = encoding("type2", QUICK.dim)
    whole, pieces = (length.in_segments(encode, segment)(*qkv) for segment in (128, 50))
    torch.testing.assert_close(whole, pieces)


def test_the_memory_of_two_processes_is_judged_and_that_of_four_is_not():
    one, *others = (length_points.side_of(count) for count in (1, 2, 4))
    for side, verdict in zip(others, ("pass", ""), strict=True):
        given = [point(one, 2**7, 100), point(side, 2**7, 55), point(one, 2**8, None), point(side, 2**8, 55)]
        (line,) = length_points.judge_shares(given, 2 if side == others[0] else 4)
        assert (line.at, line.figure, line.verdict) == ("2^7", 0.55, verdict)


def share_a_row():
    found, agreement = length_points._measure_here(2, 256, QUICK, rounds=1)
    assert (found.side, found.length) == ("linear, shared by 2 processes", 256)
    assert agreement.outputs < 1e-5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(length_points, "join_parts", lambda x, dim: torch.cat([x, x], dim))
        with pytest.raises(LrpeError, match="shared by 2 processes differ by"):
            length_points._measure_here(2, 256, QUICK, rounds=1)


@pytest.mark.slow
def test_two_processes_are_timed_on_a_row_that_they_share_if_it_is_that_of_one():
    finish(fork(share_a_row, 2))


def test_a_row_is_shared_by_a_power_of_two():
    with pytest.raises(LrpeError, match="processes must be a power of two, as the lengths are; got processes=3"):
        length.measure(quick=True, processes=3)
