"""The scale of the loss in float16 is searched for, and the search goes on where it was."""

import math

import pytest
import torch

from lrpe import LrpeError
from lrpe.lab.training.loop import Loop
from lrpe.lab.training.steps import Precision
from tests.lab.training.small_run import lines, losses, run, small_training

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
