import pytest

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks.context import Sizes, Step, _compare, _ContextResult, _measure_step
from lrpe.lab.benchmarks.process import read_settings
from lrpe.lab.cli.bench import BenchContext
from lrpe.lab.stamp import stamp

pytestmark = pytest.mark.slow


def test_two_processes_share_a_row_and_its_memory():
    one, two = (_measure_step(count, 6_144, Sizes(2, 64, 1), rounds=1) for count in (1, 2))
    assert two.loss == pytest.approx(one.loss, rel=1e-5)
    assert one.whole > one.bytes > two.bytes > 0
    (line,) = _compare([one, two], goal=0.9)
    assert line.figure == two.bytes / one.bytes
    assert line.verdict == ("pass" if line.figure <= 0.9 else "short")


def test_the_share_is_of_the_same_length():
    steps = [Step(count, n, n // count, n, 1.0, 5.5) for n in (100, 200) for count in (1, 4)]
    assert [(line.at, line.figure) for line in _compare(steps)] == [("100 tokens", 0.25), ("200 tokens", 0.25)]


def test_lengths_are_numbers_and_no_process_is_without_a_token():
    assert BenchContext(tokens="16,32").options()["lengths"] == [16, 32]
    for tokens in ("", "many", "-5", "1"):
        with pytest.raises(LrpeError, match="--tokens must be lengths"):
            BenchContext(tokens=tokens).options()


@pytest.mark.parametrize("width", [100, 200])
def test_a_width_that_heads_of_64_do_not_divide_is_refused_before_any_process_starts(width):
    assert BenchContext(width=32).options()["width"] == 32
    with pytest.raises(LrpeError, match=f"--width must be .* multiple of 64, .* got --width {width}"):
        BenchContext(width=width).options()


def test_one_process_has_no_table_of_ratios():
    step = Step(1, 100, 2**30, 2**31, 1.0, 5.5)
    result = _ContextResult(False, 1, read_settings(), stamp(), [], Sizes(2, 64, 1), [step])
    assert len(result.tables()) == 1
