"""TensorBoard and Weights & Biases are told what the record is told."""

import sys
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lrpe import LrpeError
from lrpe.lab.training import watchers
from lrpe.lab.training.loop import Loop
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
    monkeypatch.setattr(watchers, "find_spec", lambda name: None)
    with pytest.raises(LrpeError, match="pip install wandb"):
        run(tmp_path, small_training(wandb="encodings"))


def test_tensorboard_that_is_missing_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(watchers, "find_spec", lambda name: None)
    run(tmp_path)
    assert not (tmp_path / "tensorboard").exists()
