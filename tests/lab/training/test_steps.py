"""The order of the data does not depend on who takes it, and how."""

import math
from itertools import islice

import pytest
import torch

from lrpe import LrpeError
from lrpe.lab.training import steps
from lrpe.lab.training.loop import Loop
from lrpe.lab.training.steps import Precision, Steps, measure
from tests.lab.training.small_run import lines, losses, run, small_task, small_training
from tests.models.tiny import draw_ids


def updates(monkeypatch, world: int, micro_batch: int, after: int = 0, batch: int = 8) -> list[list]:
    """The samples of each of twelve updates."""
    found: list[list] = [[] for _ in range(12)]
    for rank in range(world):
        monkeypatch.setattr(steps, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(steps, "world_size", lambda: world)
        shared = Steps(small_task(), batch, micro_batch, seed=3)
        for i, one in enumerate(islice(shared.after(after), 12 * shared.accumulated)):
            found[i // shared.accumulated] += one["pixel_values"].flatten(1).tolist()
    return [sorted(samples) for samples in found]


@pytest.mark.parametrize(("world", "micro_batch"), [(1, 2), (2, 0), (2, 1), (4, 0), (4, 64), (8, 1)])
def test_an_update_has_the_same_samples_on_any_number_of_processes_and_steps(monkeypatch, world, micro_batch):
    assert updates(monkeypatch, world, micro_batch) == updates(monkeypatch, 1, 0)


@pytest.mark.parametrize("after", [1, 5, 7])
def test_a_run_that_goes_on_meets_the_samples_that_it_had_not(monkeypatch, after):
    assert updates(monkeypatch, 2, 2, after)[: 12 - after] == updates(monkeypatch, 1, 0)[after:]


def test_what_cannot_be_shared_is_named(monkeypatch):
    with pytest.raises(LrpeError, match="got batch=8, processes=3, micro_batch=0"):
        updates(monkeypatch, 3, 0)
    with pytest.raises(LrpeError, match="batch must not exceed the samples of an epoch; got batch=48"):
        updates(monkeypatch, 1, 8, batch=48)


def test_a_batch_has_tokens_or_samples():
    assert measure({"labels": draw_ids(3, 1), "input_ids": draw_ids(3, 7)}) == (21, "tokens")
    assert measure({"pixel_values": draw_ids(3, 7)}) == (3, "samples")


CPU = torch.device("cpu")


def test_an_overflow_leaves_an_update_out_and_halves_the_scale():
    precision = Precision("float16", CPU)
    assert precision.accept(3.0)
    assert precision.scale == precision.START
    assert not precision.accept(math.inf)
    assert precision.scale == precision.START / 2
    assert all(precision.accept(1.0) for _ in range(precision.PATIENCE))
    assert precision.scale == precision.START


def test_the_search_is_part_of_a_checkpoint():
    precision, other = Precision("float16", CPU), Precision("float16", CPU)
    precision.accept(math.nan)
    precision.accept(1.0)
    other.restore(precision.state())
    assert (other.scale, other.held) == (precision.START / 2, 1)


def test_a_gradient_that_overflows_at_any_scale_ends_the_run():
    precision = Precision("float16", CPU)
    with pytest.raises(LrpeError, match="overflows float16 at every loss scale"):
        [precision.accept(math.inf) for _ in range(40)]


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_other_kinds_have_no_scale_and_leave_nothing_out(kind):
    precision = Precision(kind, CPU)
    assert precision.accept(math.nan)
    assert precision.scale == 1


def test_updates_that_overflow_are_left_out_until_none_does(tmp_path, monkeypatch):
    run(tmp_path / "one", small_training(precision="float16"), dropout=0.0)
    build = Loop.__init__

    def start_higher(self, *args):
        build(self, *args)
        self.precision.scale = 2.0**20  # overflows at first

    monkeypatch.setattr(Loop, "__init__", start_higher)
    run(tmp_path / "two", small_training(precision="float16"), dropout=0.0)
    norms = [line["norm"] for line in lines(tmp_path / "two") if "norm" in line]
    assert norms[0] is None  # it was not finite, for which JSON has no word
    assert math.isfinite(norms[-1])
    assert losses(tmp_path / "two")[0] == losses(tmp_path / "one")[0]
