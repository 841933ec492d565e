"""Processes that share the rows of a batch learn what one process learns."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing import assert_close

from lrpe.errors import LrpeError
from lrpe.lab.tasks.language_modelling import LanguageModelling, MaskedLanguageModelling
from lrpe.lab.training.loop import train
from lrpe.lab.training.settings import Training
from lrpe.models import LrpeConfig, LrpeForCausalLM
from tests.lab.data.texts import dataset
from tests.lab.training.forked import finish, fork, fork_alone, kill
from tests.lab.training.small_run import SIZES, assert_same_to_rounding, lines, run, small_training
from tests.lab.training.test_parallel import wait_for
from tests.models.tiny import draw_ids, tiny

pytestmark = pytest.mark.slow
TUTORIAL = (Path(__file__).parents[3] / "docs/tutorials/many-machines.md").read_text()
TEXTS = {"train": ["one two three four five\n" * 9, "six seven eight " * 12], "validation": ["one three five\n" * 4]}


def learn(folder: Path, cache: Path, masked: bool, changes: dict[str, Any], **others: Any) -> None:
    """Train on packed rows of 15 bytes, which parts cut unevenly and in the middle of a text."""
    os.environ["LRPE_CACHE"] = str(cache)
    task = (MaskedLanguageModelling if masked else LanguageModelling)(dataset(TEXTS, length=15, packed=True))
    fields = SIZES | task.fields() | {"encoding": "selective", "decay": "gated", "convolution": 3} | others
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
    assert len(lines(tmp_path)) < len(lines(one[False]))
    finish(fork(learn, 1, tmp_path, cache, False, {}))
    assert_same_to_rounding(tmp_path, one[False])


def run_command(words: list[str]) -> None:
    from lrpe.lab.cli import main

    assert main(words) == 0


def test_the_command_of_the_tutorial_learns_what_one_process_learns(tmp_path):
    processes, words = re.findall(r"^torchrun --standalone --nproc-per-node (4) -m lrpe (.*)$", TUTORIAL, re.MULTILINE)[
        0
    ]
    short = [*words.split(), "--training.optimization.updates", "3", "--training.evaluate_every", "3", "--out"]
    finish(fork_alone(run_command, int(processes), [*short, str(tmp_path / "several")]))
    finish(fork_alone(run_command, 1, [*short, str(tmp_path / "one"), "--training.context_parallel", "1"]))
    assert "context_parallel: 2" in (tmp_path / "several/config.yaml").read_text()
    assert_same_to_rounding(tmp_path / "several", tmp_path / "one")


def run_loop() -> None:
    """The loop of the tutorial, as it stands there, and what it leaves in the model's gradients."""
    (loop,) = re.findall(r"^```py\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL)
    model, ids = tiny(LrpeForCausalLM).float().train(), draw_ids(2, 12)
    exec(loop, {"model": model, "ids": ids})
    found = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    dist.destroy_process_group()
    model.zero_grad()
    model(ids[:, :-1], targets=ids[:, 1:], use_cache=False).loss.mean().backward()
    for name, weight in model.named_parameters():
        assert_close(found[name], weight.grad, rtol=1e-4, atol=1e-4, msg=name)


def test_the_loop_of_the_tutorial_has_the_gradients_of_one_process():
    finish(fork_alone(run_loop, 2))


def refuse(folder: Path, cache: Path) -> None:
    with pytest.raises(LrpeError, match="Softmax attention must send"):
        learn(
            folder / "softmax", cache, False, {"context_parallel": 2}, encoding="rope", decay=None, attention="softmax"
        )
    with pytest.raises(LrpeError, match="the loss of bright or dark does not"):
        run(folder / "images", small_training(context_parallel=2))
    with pytest.raises(LrpeError, match="context_parallel must divide the number of processes; got context_parallel=3"):
        run(folder / "three", small_training(context_parallel=3))


def test_what_cannot_be_cut_is_refused(tmp_path, cache):
    finish(fork(refuse, 2, tmp_path, cache))
    with pytest.raises(LrpeError, match="compile must be False"):
        Training(context_parallel=2, compile=True)
