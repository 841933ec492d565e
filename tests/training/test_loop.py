"""A run that was broken off has the losses and the weights of one that was not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from lrpe import LrpeError
from lrpe.training.checkpoint import read_progress
from lrpe.training.loop import Loop, StoppedError
from lrpe.training.record import Record
from tests.training.small_run import run, small_training

ROOT = Path(__file__).parents[2]


def losses(folder: Path) -> list[tuple]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [tuple((name, value) for name, value in line.items() if name != "seconds") for line in lines]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "last" / "model.safetensors")


def assert_same_run(folder: Path, whole: Path) -> None:
    assert losses(folder) == losses(whole)
    for name, value in weights(whole).items():
        assert torch.equal(weights(folder)[name], value), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return folder


class CrashError(Exception):
    pass


@pytest.mark.parametrize("update", [0, 1, 4, 5, 7, 11])
def test_a_run_that_crashed_at_any_update_goes_on_as_if_it_had_not(tmp_path, whole, monkeypatch, update):
    learn = Loop.learn

    def fail(self, steps):
        if self.update == update:
            raise CrashError
        return learn(self, steps)

    monkeypatch.setattr(Loop, "learn", fail)
    with pytest.raises(CrashError):
        run(tmp_path / "run")
    monkeypatch.setattr(Loop, "learn", learn)
    run(tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)


def test_a_run_that_ended_is_not_trained_again(tmp_path, whole, monkeypatch):
    monkeypatch.setattr(Loop, "learn", lambda *_: pytest.fail("trained all the same"))
    assert run(whole)["accuracy"] == Record(whole, {}, writes=False).metrics()[-1]["validation accuracy"]


def test_a_request_to_stop_is_obeyed_after_the_update_and_saved(tmp_path, whole, monkeypatch):
    learn = Loop.learn

    def ask(self, steps):
        if self.update == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return learn(self, steps)

    monkeypatch.setattr(Loop, "learn", ask)
    with pytest.raises(StoppedError, match="after update 5 and saved"):
        run(tmp_path / "run")
    monkeypatch.setattr(Loop, "learn", learn)
    assert (tmp_path / "run" / "last").resolve().name == "step-00000005"
    run(tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(tmp_path, whole, capsys, monkeypatch):
    learn = Loop.learn
    monkeypatch.setattr(Loop, "learn", lambda self, steps: learn(self, steps) if self.update < 9 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(tmp_path / "run")
    monkeypatch.setattr(Loop, "learn", learn)
    file = tmp_path / "run" / "checkpoints" / "step-00000008" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    run(tmp_path / "run")
    assert "step-00000008 is damaged" in capsys.readouterr().err
    assert_same_run(tmp_path / "run", whole)


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_its_checkpoint(tmp_path, monkeypatch):
    learn = Loop.learn

    def explode(self, steps):
        if self.update == 5:
            for parameter in self.bare.parameters():
                parameter.data.fill_(float("nan"))
        return learn(self, steps)

    monkeypatch.setattr(Loop, "learn", explode)
    with pytest.raises(LrpeError, match=r"The loss became nan .* at update 6 .*the losses before were 0\."):
        run(tmp_path)
    assert (tmp_path / "last").resolve().name == "step-00000004"
    assert all(value.isfinite().all() for value in weights(tmp_path).values())


def test_a_folder_of_another_configuration_is_refused(tmp_path):
    Record(tmp_path, {"a": {"b": 1}})
    with pytest.raises(LrpeError, match=r"another configuration \(a.b: 1 there, 2 now\)"):
        Record(tmp_path, {"a": {"b": 2}})


def test_accumulated_steps_are_one_larger_batch(tmp_path):
    plain, split = (run(tmp_path / str(n), small_training(micro_batch=n), dropout=0.0) for n in (0, 2))
    assert plain == pytest.approx(split)
    for name, value in weights(tmp_path / "0").items():
        assert_close(weights(tmp_path / "2")[name], value, rtol=1e-4, atol=1e-5)


def test_the_best_checkpoint_stays_and_old_ones_go(tmp_path):
    run(tmp_path, small_training(updates=20, evaluate_every=4))
    kept = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert {(tmp_path / name).resolve().name for name in ("last", "best")} <= kept
    assert len(kept) <= 3
    assert not list((tmp_path / "checkpoints").glob(".*"))


def test_a_batch_that_cannot_be_shared_is_named(tmp_path):
    with pytest.raises(LrpeError, match="in equal parts; got batch=8, processes=1, micro_batch=3"):
        run(tmp_path, small_training(micro_batch=3))


def start(folder: Path, processes: int, *more: str) -> subprocess.Popen:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    script = [str(Path(__file__).with_name("small_run.py")), str(folder), *more]
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*several, *script] if processes > 1 else script
    return subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def test_a_process_killed_outright_goes_on(tmp_path):
    finish(start(tmp_path / "whole", 1))
    process = start(tmp_path / "run", 1)
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "last").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()
    process.communicate()
    finish(start(tmp_path / "run", 1))
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A run of one process, in two steps an update."""
    folder = tmp_path_factory.mktemp("one")
    finish(start(folder, 1, "--micro-batch=4"))
    return folder


def assert_same_to_rounding(folder: Path, whole: Path) -> None:
    for line, other in zip(losses(folder), losses(whole), strict=True):
        assert dict(line) == pytest.approx(dict(other), rel=1e-4, abs=1e-5)
    for name, value in weights(whole).items():
        assert_close(weights(folder)[name], value, rtol=1e-3, atol=1e-5)


def test_two_processes_give_the_losses_of_one(tmp_path, one):
    finish(start(tmp_path, 2))
    assert_same_to_rounding(tmp_path, one)


def test_one_process_goes_on_with_a_run_that_two_began(tmp_path, one):
    _, errors = start(tmp_path, 2, "--stop-at=5").communicate(timeout=120)
    assert "Stopped after update 5 and saved" in errors  # both of them, though only one was asked
    progress = read_progress(tmp_path / "last")
    assert (progress["update"], progress["processes"]) == (5, 2)
    finish(start(tmp_path, 1))
    assert read_progress(tmp_path / "last")["processes"] == 1
    assert_same_to_rounding(tmp_path, one)
