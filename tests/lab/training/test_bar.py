"""Progress is a bar on a terminal, and lines elsewhere."""

import io
import sys

import pytest

from lrpe.lab.training import bar
from lrpe.lab.training.bar import Bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on when it is told to."""
    now = [100.0]
    monkeypatch.setattr(bar.time, "monotonic", lambda: now[0])

    def pass_by(seconds):
        now[0] += seconds

    return pass_by


def test_elsewhere_there_is_a_line_now_and_then_and_at_the_end(capsys, clock):
    with Bar("small", total=10, done=4, shown=True) as shown:
        for update in range(5, 11):
            clock(4)
            shown.show(update, 4000, "tokens", {"loss": 1 / update, "perplexity": 7.25})
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "small: update 7 of 10, loss 0.1429, perplexity 7.25, 1.00k tokens/s, 00:12 left",
        "small: update 10 of 10, loss 0.1, perplexity 7.25, 1.00k tokens/s, 00:00 left",
    ]


def test_on_a_terminal_there_is_a_bar(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Bar("small", total=10, done=4, shown=True) as shown:
        clock(2)
        shown.show(5, 3000, "tokens", {"loss": 0.25})
    drawn = sys.stderr.getvalue()
    assert "5/10" in drawn
    assert "loss 0.25, 1.50k tokens/s" in drawn


def test_only_the_first_process_shows_anything(capsys, clock):
    with Bar("small", total=1, done=0, shown=False) as shown:
        clock(60)
        shown.show(1, 10, "samples", {})
    assert capsys.readouterr().err == ""
