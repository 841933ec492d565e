"""Processes that share the rows of a batch learn what one process learns."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from lrpe.errors import LrpeError
from lrpe.lab.tasks.language_modelling import LanguageModelling, MaskedLanguageModelling
from lrpe.lab.training.loop import train
from lrpe.lab.training.settings import Training
from lrpe.models import LrpeConfig
from tests.lab.data.texts import dataset
from tests.lab.training.forked import finish, fork, kill
from tests.lab.training.small_run import SIZES, assert_same_to_rounding, run, small_training
from tests.lab.training.test_parallel import wait_for

pytestmark = pytest.mark.slow
TEXTS = {"train": ["one two three four five\n" * 9, "six seven eight " * 12], "validation": ["one three five\n" * 4]}


def learn(folder: Path, cache: Path, masked: bool, changes: dict[str, Any]) -> None:
    """Train on packed rows of 15 bytes, which parts cut unevenly and in the middle of a text."""
    os.environ["LRPE_CACHE"] = str(cache)
    task = (MaskedLanguageModelling if masked else LanguageModelling)(dataset(TEXTS, length=15, packed=True))
    fields = SIZES | task.fields() | {"encoding": "selective", "decay": "gated", "convolution": 3}
    torch.manual_seed(0)
    model = task.model_class(LrpeConfig(**fields, hidden_dropout_prob=0.0))
    training = small_training(updates=6, batch=4, rate=3e-3, evaluate_every=3, save_every=1, **changes)
    train(task, model, training, folder, {"name": "small", "training": {"seed": 0}}, "small")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def one(tmp_path_factory, cache):
    folders = {masked: tmp_path_factory.mktemp("one") for masked in (False, True)}
    for masked, folder in folders.items():
        finish(fork(learn, 1, folder, cache, masked, {}))
    return folders


@pytest.mark.parametrize(
    ("processes", "masked", "changes"),
    [
        (4, False, {"context_parallel": 2, "parallel": "ddp", "micro_batch": 1, "checkpointing": True}),
        (2, True, {"context_parallel": 2, "parallel": "fsdp"}),
    ],
)
def test_parts_of_rows_give_the_losses_and_weights_of_one_process(tmp_path, cache, one, processes, masked, changes):
    finish(fork(learn, processes, tmp_path, cache, masked, changes))
    assert_same_to_rounding(tmp_path, one[masked])


def test_a_run_on_parts_that_was_killed_goes_on_with_one_process(tmp_path, cache, one):
    several = fork(learn, 2, tmp_path, cache, False, {"context_parallel": 2})
    wait_for(tmp_path / "checkpoints" / "step-00000002")
    kill(several)
    finish(fork(learn, 1, tmp_path, cache, False, {}))
    assert_same_to_rounding(tmp_path, one[False])


def refuse(folder: Path) -> None:
    with pytest.raises(LrpeError, match="the loss of bright or dark does not"):
        run(folder / "images", small_training(context_parallel=2))
    with pytest.raises(LrpeError, match="context_parallel must divide the number of processes; got context_parallel=3"):
        run(folder / "three", small_training(context_parallel=3))


def test_what_cannot_be_cut_is_refused(tmp_path):
    finish(fork(refuse, 2, tmp_path))
    with pytest.raises(LrpeError, match="compile must be False"):
        Training(context_parallel=2, compile=True)
