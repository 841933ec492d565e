"""A run that was broken off has the losses and the weights of one that was not."""

import json
import os
import signal
from functools import partial

import pytest
import torch

from lrpe import LrpeError
from lrpe.lab.training.checkpoint import DONE, CheckpointHistory
from lrpe.lab.training.loop import Loop, StoppedError, improves
from lrpe.lab.training.run_files import read_metrics
from lrpe.models import LrpeForImageClassification
from tests.lab.training.small_run import (
    assert_same_run,
    assert_same_to_rounding,
    lines,
    losses,
    run,
    small_training,
    weights,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run without dropout."""
    folder = tmp_path_factory.mktemp("plain")
    run(folder, dropout=0.0)
    return folder


class CrashError(Exception):
    pass


@pytest.fixture
def at_update(monkeypatch):
    """Something that happens as an update begins, the first of which is 1."""
    learn = Loop.learn

    def arrange(update, act):
        def acting(self, steps):
            if self.update + 1 == update:
                act(self)
            return learn(self, steps)

        monkeypatch.setattr(Loop, "learn", acting)

    yield arrange
    monkeypatch.setattr(Loop, "learn", learn)


def crash(loop):
    raise CrashError


@pytest.mark.parametrize("update", [1, 4, 5, 12])
def test_a_run_that_crashed_at_any_update_goes_on_as_if_it_had_not(tmp_path, whole, at_update, update):
    at_update(update, crash)
    with pytest.raises(CrashError):
        run(tmp_path)
    at_update(update, lambda loop: None)
    run(tmp_path)
    assert_same_run(tmp_path, whole)


def test_a_run_that_ended_is_not_trained_again(whole, at_update, monkeypatch):
    monkeypatch.setattr(Loop, "learn", lambda *_: pytest.fail("trained all the same"))
    assert run(whole)["accuracy"] == read_metrics(whole)[0][-1]["validation accuracy"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_stop_is_obeyed_after_the_update_and_saved(tmp_path, whole, at_update, interruptible, number):
    at_update(5, lambda loop: os.kill(os.getpid(), number))
    with pytest.raises(StoppedError, match="after update 5 and saved"):
        run(tmp_path)
    at_update(5, lambda loop: None)
    assert (tmp_path / "last").resolve().name == "step-00000005"
    run(tmp_path)
    assert_same_run(tmp_path, whole)


def test_a_request_to_stop_in_the_last_update_is_not_forgotten(tmp_path, whole, at_update):
    at_update(12, lambda loop: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(StoppedError, match="after the last update and saved"):
        run(tmp_path)
    assert_same_run(tmp_path, whole)


def test_the_best_of_every_kept_checkpoint_is_kept(tmp_path):
    history = CheckpointHistory(tmp_path)
    for update, best in [(10, 10), (20, 10), (30, 10), (40, 40)]:
        history.path_of(update).mkdir(parents=True)
        (history.path_of(update) / DONE).write_text(json.dumps({"update": update, "best": [best, 0.5]}))
        history.link(update, best)
    assert [path.name for path in history.list_all()] == ["step-00000040", "step-00000030", "step-00000010"]


@pytest.mark.parametrize("wrong", [{"evaluate_every": 0}, {"seed": -1}, {"workers": -1}])
def test_a_training_that_cannot_be_is_named(wrong):
    with pytest.raises(LrpeError, match=r"must be at least [01]; got (\w+=)?(-1|0)\."):
        small_training(**wrong)


def test_a_second_interruption_is_obeyed_at_once(tmp_path, at_update, interruptible):
    at_update(5, lambda loop: [os.kill(os.getpid(), signal.SIGINT) for _ in range(2)])
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert (tmp_path / "last").resolve().name == "step-00000003"


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_its_checkpoint(tmp_path, at_update):
    def explode(loop):
        for parameter in loop.bare.parameters():
            parameter.data.fill_(float("nan"))

    at_update(6, explode)
    with pytest.raises(LrpeError, match=r"The loss became nan .* at update 6 \(epoch 1, rate .*losses were 0\."):
        run(tmp_path)
    assert (tmp_path / "last").resolve().name == "step-00000003"
    assert all(value.isfinite().all() for value in weights(tmp_path).values())


def test_a_gradient_that_is_no_number_changes_no_weight(tmp_path, at_update):
    at_update(6, lambda loop: loop.parameters[0].register_hook(lambda gradient: gradient * float("inf")))
    with pytest.raises(LrpeError, match=r"The loss became 0\..* and its gradient norm (nan|inf) at update 6"):
        run(tmp_path)


def test_accumulated_steps_are_one_larger_batch(tmp_path, plain):
    run(tmp_path, small_training(micro_batch=4), dropout=0.0)
    assert_same_to_rounding(tmp_path, plain)


def test_a_run_goes_on_with_another_micro_batch(tmp_path, plain, at_update):
    at_update(5, crash)
    with pytest.raises(CrashError):
        run(tmp_path, small_training(micro_batch=2), dropout=0.0)
    at_update(5, lambda loop: None)
    run(tmp_path, small_training(micro_batch=4), dropout=0.0)
    assert_same_to_rounding(tmp_path, plain)


def test_divergence_keeps_the_last_good_checkpoint_and_says_how_to_go_on(tmp_path, at_update):
    def spoil(loop):
        for parameter in loop.bare.parameters():
            parameter.data.fill_(float("nan"))
        loop.save()  # as an update whose step gave NaN, before anybody measures a loss, would be

    at_update(8, spoil)
    good = tmp_path / "checkpoints" / "step-00000006"
    with pytest.raises(LrpeError, match=rf"same command would fail again.*--from {good} --training.optim.* 0\.005"):
        run(tmp_path)
    assert (tmp_path / "last").resolve() == good
    assert (tmp_path / "checkpoints" / "diverged-step-00000007").is_dir()
    assert all(value.isfinite().all() for value in weights(tmp_path).values())
    last = lines(tmp_path)[-1]
    assert (last["update"], last["loss"], last["diverged"]) == (8, None, 1)
    with pytest.raises(LrpeError, match="from the last good checkpoint"):
        run(tmp_path)  # again, from the good one
    at_update(8, lambda loop: None)
    run(tmp_path)
    assert "diverged" not in {key for line in lines(tmp_path) for key in line}


def test_divergence_before_the_first_good_checkpoint_says_to_begin_anew(tmp_path, at_update):
    at_update(2, lambda loop: loop.save())
    with pytest.raises(LrpeError, match=r"Start a new run with a lower rate, or clip gradients\."):
        run(tmp_path, small_training(rate=1e30, clip=0.0, warmup=0))
    assert not (tmp_path / "last").is_symlink()


def test_a_batch_that_cannot_be_shared_is_named(tmp_path):
    with pytest.raises(LrpeError, match="into micro-batches; got batch=8, processes=1, micro_batch=3"):
        run(tmp_path, small_training(micro_batch=3))


def test_activations_that_are_computed_again_change_nothing(tmp_path, whole):
    run(tmp_path, small_training(checkpointing=True))
    assert_same_run(tmp_path, whole)


def test_a_compiled_model_learns_the_same(tmp_path, plain, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    run(tmp_path, small_training(compile=True), dropout=0.0)
    assert_same_to_rounding(tmp_path, plain)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_learns_and_goes_on_as_if_it_had_not_crashed(tmp_path, at_update, precision):
    training = small_training(updates=30, evaluate_every=15, save_every=0, precision=precision)
    run(tmp_path / "whole", training)
    at_update(20, crash)
    with pytest.raises(CrashError):
        run(tmp_path / "run", training)
    at_update(20, lambda loop: None)
    found = run(tmp_path / "run", training)
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert sum(losses(tmp_path / "run")[-5:]) < 0.8 * sum(losses(tmp_path / "run")[:5])
    assert found["accuracy"] > 0.8


def test_a_run_is_as_long_as_its_epochs(tmp_path):
    run(tmp_path, small_training(epochs=2.2, warmup_epochs=1, evaluate_every=100))
    rates = [line["rate"] for line in lines(tmp_path) if "rate" in line]
    assert len(rates) == 11  # of 5 an epoch, whose last two samples fill no batch
    assert rates.index(max(rates)) == 4


def test_the_best_checkpoint_stays_and_old_ones_go(tmp_path):
    run(tmp_path, small_training(updates=20, evaluate_every=4))
    kept = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert {(tmp_path / name).resolve().name for name in ("last", "best")} <= kept
    assert len(kept) <= 3
    LrpeForImageClassification.from_pretrained(tmp_path / "best")


def test_what_is_scored_does_not_depend_on_how_many_are_scored_at_a_time(tmp_path):
    options = {"updates": 3, "evaluate_every": 1}
    three = run(tmp_path / "three", small_training(evaluation_batch=3, evaluation_batches=4, **options))
    twelve = run(tmp_path / "twelve", small_training(evaluation_batch=12, evaluation_batches=1, **options))
    assert three == pytest.approx(twelve)


def test_any_figure_is_better_than_none():
    assert improves(0.1, float("nan"), "higher")
    assert improves(0.2, 0.1, "higher")
    assert not improves(0.2, 0.1, "lower")
    assert not improves(float("nan"), 0.1, "lower")
