"""Several processes learn what one does, and go on with each other's runs."""

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

from lrpe.lab.training.checkpoint import Progress, read_progress, save_checkpoint
from lrpe.lab.training.parallel import Sharded
from lrpe.lab.training.processes import barrier, local_device, process_group, rank, run_on_first, world_size
from lrpe.lab.training.settings import Optimization
from lrpe.models import LrpeForCausalLM, LrpeForImageClassification
from tests.lab.training.forked import finish, fork, kill, start
from tests.lab.training.small_run import assert_same_to_rounding, lines, run
from tests.models.tiny import draw_ids, tiny

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    run(folder, dropout=0.0)
    return folder


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("micro_batch", [0, 2])
def test_two_processes_give_the_losses_and_weights_of_one(tmp_path, one, parallel, micro_batch):
    finish(start(tmp_path, 2, parallel=parallel, micro_batch=micro_batch))
    assert_same_to_rounding(tmp_path, one)
    assert read_progress(tmp_path / "last").processes == 2
    LrpeForImageClassification.from_pretrained(tmp_path / "best")


def wait_for(path: Path, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert path.exists()


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_run_of_two_that_was_killed_goes_on_with_two_one_or_another_kind(tmp_path, one, parallel):
    several = start(tmp_path, 2, parallel=parallel, save_every=1)
    wait_for(tmp_path / "checkpoints" / "step-00000002")
    kill(several)
    assert len(lines(tmp_path)) < len(lines(one))
    several = start(tmp_path, 2, parallel=parallel, save_every=1)
    wait_for(tmp_path / "checkpoints" / "step-00000005")
    kill(several)
    if parallel == "ddp":
        finish(start(tmp_path, 2, parallel="fsdp"))
    else:
        finish(start(tmp_path, 1))
    assert_same_to_rounding(tmp_path, one)


def save_tied(folder: Path) -> None:
    """A language model in shares, after a step."""
    parallel = Sharded()
    bare = tiny(LrpeForCausalLM)
    if rank() == 1:
        torch.nn.init.zeros_(bare.lm_head.weight)  # the first process's weights count
    model = parallel.wrap(bare)
    optimizer = Optimization(rate=0.1).build(model)
    with parallel.step(model, last=True):
        model(draw_ids(2, 9), labels=draw_ids(2, 9)).loss.backward()
    optimizer.step()
    save_checkpoint(folder, model, bare, optimizer, Progress(1))


def test_tied_embeddings_stay_tied_in_shares(tmp_path):
    finish(fork(save_tied, 2, tmp_path / "two"))
    model = tiny(LrpeForCausalLM)
    optimizer = Optimization(rate=0.1).build(model)
    model(draw_ids(2, 9), labels=draw_ids(2, 9)).loss.backward()
    optimizer.step()
    found = LrpeForCausalLM.from_pretrained(tmp_path / "two")
    assert found.lm_head.weight is found.model.embed_tokens.weight
    assert "lm_head.weight" not in load_file(tmp_path / "two" / "model.safetensors")
    for name, value in model.state_dict().items():
        assert_close(found.state_dict()[name], value, rtol=1e-4, atol=1e-4, check_dtype=False)


def test_torchrun_that_is_asked_to_stop_lets_its_processes_save(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, str(Path(__file__).with_name("small_run.py")), str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        while len(lines(tmp_path) if (tmp_path / "metrics.jsonl").exists() else []) < 3 and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert "and saved; run the same command to resume" in errors
    assert read_progress(tmp_path / "last").update == lines(tmp_path)[-1]["update"]


def test_alone_there_is_nobody_to_wait_for(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with process_group() as device:
        assert device == local_device()
        assert (rank(), world_size(), run_on_first(lambda: 3)) == (0, 1, 3)
        barrier()
