import pytest
import torch

from lrpe.lab.benchmarks.lines import (
    Line,
    calls_within,
    forward_and_backward,
    judge,
    line_table,
    missing_line,
    time_beside,
)


@pytest.mark.parametrize(("figure", "goal", "word"), [(0.7, 0.7, "pass"), (0.71, 0.7, "short"), (9.0, None, "")])
def test_a_figure_passes_up_to_its_goal(figure, goal, word):
    assert judge(figure, goal) == word


@pytest.mark.parametrize(("figure", "goal", "word"), [(0.7, 0.7, "pass"), (0.69, 0.7, "short"), (9.0, None, "")])
def test_where_higher_is_better_a_figure_passes_from_its_goal_on(figure, goal, word):
    assert judge(figure, goal, "higher") == word
    assert ("≥ 0.7" in line_table([Line("speed", "", goal, word, figure, better="higher")])) == (goal is not None)


def test_a_line_prints_its_goal_its_figure_and_its_word():
    lines = [
        Line("ours ÷ theirs", "N = 8", 0.7, "pass", 0.5, 0.4, 0.6, 0.001),
        Line("memory", "N = 8", 6, "short", 7.0),
        Line("ungated", "N = 8", None, "", 0.0123, 0.0123, 0.0123),
        missing_line("ours ÷ absent", "N = 8", 0.8),
    ]
    shown = [line.split() for line in line_table(lines).splitlines()[2:]]
    assert shown[0][-5:] == ["0.7", "0.50", "(0.40–0.60)", "pass", "1"]
    assert shown[1][-3:] == ["7.00", "short", "–"]
    assert "0.0123" in shown[2]
    assert shown[3][-3:] == ["missing", "missing", "–"]


def test_both_sides_are_timed():
    calls = []
    line = time_beside("a ÷ b", "here", 0.5, lambda: calls.append("ours"), lambda: calls.append("theirs"), rounds=2)
    assert set(calls) == {"ours", "theirs"}
    assert line.verdict in ("pass", "short")
    assert line.low <= line.figure <= line.high


def test_forward_and_backward_gives_the_output_and_every_gradient():
    x, weight = torch.randn(3, 4), torch.randn(4, requires_grad=True)
    out, dx, dweight = forward_and_backward(lambda x: x * weight, x, learned=[weight])()
    assert torch.equal(out, x * weight)
    assert dx.shape == x.shape
    assert dweight.shape == weight.shape


def test_there_is_one_call_at_least_and_a_hundred_at_most(monkeypatch):
    for step, calls in ((10.0, 1), (0.01, 5), (1e-6, 100)):
        times = iter([0.0, step])
        monkeypatch.setattr("lrpe.lab.benchmarks.lines.clock", lambda times=times: next(times))
        assert calls_within(0.05, lambda: None) == calls
