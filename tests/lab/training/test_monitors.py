"""TensorBoard and Weights & Biases are told what the record is told."""

import io
import sys
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lrpe import LrpeError
from lrpe.lab.training import record
from lrpe.lab.training.loop import Loop
from lrpe.lab.training.record import ProgressBar
from tests.lab.training.small_run import lines, losses, run, small_training


def scalars(folder, name: str) -> list[tuple[int, float]]:
    found = EventAccumulator(str(folder / "tensorboard")).Reload()
    return [(event.step, event.value) for event in found.Scalars(name)]


def test_tensorboard_has_the_losses_once_though_the_run_went_on(tmp_path, monkeypatch):
    learn = Loop.learn
    monkeypatch.setattr(Loop, "learn", lambda self, steps: learn(self, steps) if self.update < 8 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(tmp_path)
    monkeypatch.setattr(Loop, "learn", learn)
    run(tmp_path)
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    expected = list(enumerate(losses(tmp_path), 1))
    assert scalars(tmp_path, "loss") == [(step, pytest.approx(loss)) for step, loss in expected]
    assert [step for step, _ in scalars(tmp_path, "validation/accuracy")] == [6, 12]


def test_a_run_that_ended_is_not_told_again(tmp_path):
    run(tmp_path)
    run(tmp_path)
    assert len(list((tmp_path / "tensorboard").iterdir())) == 1


class FakeRun:
    def __init__(self, **options):
        self.options, self.told, self.finished = options, [], False

    def log(self, figures, step):
        self.told.append((step, figures))

    def finish(self):
        self.finished = True


@pytest.fixture
def wandb(monkeypatch):
    runs = []

    def init(**options):
        runs.append(FakeRun(**options))
        return runs[-1]

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, __spec__=SimpleNamespace()))
    return runs


def test_weights_and_biases_is_told_and_taken_up_again(tmp_path, wandb):
    run(tmp_path, small_training(updates=6, wandb="encodings"))
    first = wandb[-1]
    assert first.options | {"id": ""} == {
        "project": "encodings",
        "name": "small",
        "config": {"name": "small"},
        "id": "",
        "resume": "allow",
        "dir": tmp_path,
    }
    assert first.finished
    assert [{"update": step} | figures for step, figures in first.told if "loss" in figures] == [
        line | {"seconds": pytest.approx(0, abs=60)} for line in lines(tmp_path) if "loss" in line
    ]
    run(tmp_path, small_training(updates=8, wandb="encodings"))
    assert wandb[-1].options["id"] == first.options["id"]
    assert [step for step, _ in wandb[-1].told] == [7, 8, 8]


def test_weights_and_biases_that_is_missing_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "find_spec", lambda name: None)
    with pytest.raises(LrpeError, match="pip install wandb"):
        run(tmp_path, small_training(wandb="encodings"))


def test_tensorboard_that_is_missing_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "find_spec", lambda name: None)
    run(tmp_path)
    assert not (tmp_path / "tensorboard").exists()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on when it is told to."""
    now = [100.0]
    monkeypatch.setattr(record.time, "monotonic", lambda: now[0])

    def pass_by(seconds):
        now[0] += seconds

    return pass_by


def test_elsewhere_there_is_a_line_now_and_then_and_at_the_end(capsys, clock):
    with ProgressBar("small", total=10, done=4, shown=True) as shown:
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
    with ProgressBar("small", total=10, done=4, shown=True) as shown:
        clock(2)
        shown.show(5, 3000, "tokens", {"loss": 0.25})
    drawn = sys.stderr.getvalue()
    assert "5/10" in drawn
    assert "loss 0.25, 1.50k tokens/s" in drawn


def test_only_the_first_process_shows_anything(capsys, clock):
    with ProgressBar("small", total=1, done=0, shown=False) as shown:
        clock(60)
        shown.show(1, 10, "samples", {})
    assert capsys.readouterr().err == ""
