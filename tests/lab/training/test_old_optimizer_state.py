"""Runs begun by earlier versions go on; what their pickles say is never run."""

import copy
import io
import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.checkpoint.state_dict_saver import save

from lrpe import LrpeError
from lrpe.lab.data.cache import hash_files
from lrpe.lab.training import checkpoint
from lrpe.lab.training.checkpoint import load_state
from lrpe.lab.training.loop import Loop
from lrpe.lab.training.old_checkpoints import METADATA
from tests.lab.training.forked import finish, fork
from tests.lab.training.small_run import assert_same_run, assert_same_to_rounding, run, small_training
from tests.lab.training.test_checkpoint import learned


def save_as_before(folder: Path, model, optimizer) -> None:
    """What earlier versions did in place of ``save_state``."""
    state = {"optimizer": get_optimizer_state_dict(model, optimizer)}
    save(state, storage_writer=FileSystemWriter(folder), no_dist=not torch.distributed.is_initialized())


class BrokenOffError(Exception):
    pass


def run_to(update: int, folder: Path, **changes) -> None:
    """The small run, broken off after so many updates, with a checkpoint of the old kind."""
    learn = Loop.learn

    def learn_or_end(self, steps):
        if self.update == update:
            raise BrokenOffError
        return learn(self, steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "learn", learn_or_end)
        patch.setattr("lrpe.lab.training.checkpoint.save_state", save_as_before)
        with pytest.raises(BrokenOffError):
            run(folder, small_training(**changes), dropout=0.0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run(folder, dropout=0.0)
    return folder


def test_a_run_of_an_earlier_version_goes_on_bit_for_bit(tmp_path, whole):
    run_to(7, tmp_path)
    assert (tmp_path / "last" / "state" / METADATA).exists()
    run(tmp_path, dropout=0.0)
    assert "Resumed after update 6" in (tmp_path / "train.log").read_text()
    assert_same_run(tmp_path, whole)


@pytest.mark.slow
def test_shares_of_an_earlier_version_are_read_by_one_process(tmp_path, whole):
    finish(fork(run_shares, 2, tmp_path))
    assert len(list((tmp_path / "last" / "state").glob("*.distcp"))) == 2
    run(tmp_path, dropout=0.0)
    assert_same_to_rounding(tmp_path, whole)


def run_shares(folder: Path) -> None:
    run_to(7, folder, parallel="fsdp")


class Attack:
    """Unpickling this makes a file."""

    def __init__(self, made: Path):
        self.made = made

    def __reduce__(self):
        return os.mkdir, (str(self.made),)


def plant(checkpoint: Path, made: Path) -> None:
    """A stranger's checkpoint: its index runs a command, and the list of hashes is right."""
    (checkpoint / "state" / METADATA).write_bytes(pickle.dumps(Attack(made)))
    progress = json.loads((checkpoint / "checkpoint.json").read_text())
    progress["sha256"] = {
        path.relative_to(checkpoint).as_posix(): hash_files(path)
        for path in checkpoint.rglob("*")
        if path.is_file() and path.name != "checkpoint.json"
    }
    (checkpoint / "checkpoint.json").write_text(json.dumps(progress))


@pytest.mark.parametrize("old", [True, False])
def test_a_planted_command_is_not_run(tmp_path, old, whole):
    folder = tmp_path / "run"
    if old:
        run_to(7, folder)
    else:
        shutil.copytree(whole, folder, symlinks=True)
    plant(folder / "last", tmp_path / "made")
    with pytest.raises(LrpeError, match=r"it names posix.mkdir.* Do not trust"):
        run(folder, dropout=0.0)
    assert not (tmp_path / "made").exists()


def test_a_planted_tensor_is_not_run(tmp_path):
    model, optimizer = learned(seed=0)
    save_as_before(tmp_path / "state", model, optimizer)
    file = tmp_path / "state" / "__0_0.distcp"
    buffer = io.BytesIO()
    torch.save(Attack(tmp_path / "made"), buffer)
    file.write_bytes(buffer.getvalue() + bytes(file.stat().st_size))
    with pytest.raises(LrpeError, match="cannot be read"):
        load_state(tmp_path / "state", model, optimizer)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_index_is_refused(tmp_path, seed):
    model, optimizer = learned(seed=0)
    save_as_before(tmp_path, model, optimizer)
    before = copy.deepcopy(optimizer.state_dict())
    content = bytearray((tmp_path / METADATA).read_bytes())
    generator = torch.Generator().manual_seed(seed)
    for place in torch.randint(len(content), (20,), generator=generator).tolist():
        content[place] ^= 1 << int(torch.randint(8, (), generator=generator))
    (tmp_path / METADATA).write_bytes(content)
    try:
        load_state(tmp_path, model, optimizer)
    except LrpeError:
        return
    after = optimizer.state_dict()  # the damage was in what nobody reads
    for key, state in before["state"].items():
        assert all(torch.equal(value, after["state"][key][name]) for name, value in state.items())


def test_an_index_does_not_take_memory_for_entries_that_it_has_not(tmp_path):
    model, optimizer = learned(seed=0)
    save_as_before(tmp_path, model, optimizer)
    entry = pickle.NONE + pickle.LONG_BINPUT + (2**31).to_bytes(4, "little")  # a list of 32 GiB in Python's unpickler
    (tmp_path / METADATA).write_bytes(entry + pickle.STOP)
    with pytest.raises(LrpeError, match=r"entry 2147483648 lies beyond its 7 bytes"):
        load_state(tmp_path, model, optimizer)


def test_an_index_that_leads_out_of_the_folder_is_refused(tmp_path):
    model, optimizer = learned(seed=0)
    save_as_before(tmp_path / "state", model, optimizer)
    (tmp_path / "state" / "__0_0.distcp").rename(tmp_path / "__0_0.distcp")
    index = pickle.loads((tmp_path / "state" / METADATA).read_bytes())
    for info in index.storage_data.values():
        info.relative_path = "../__0_0.distcp"
    (tmp_path / "state" / METADATA).write_bytes(pickle.dumps(index))
    with pytest.raises(LrpeError, match="leads out of the folder"):
        load_state(tmp_path / "state", model, optimizer)


def test_new_checkpoints_hold_no_pickle(whole):
    names = {path.name for path in (whole / "last").rglob("*") if path.is_file()}
    assert {Path(name).suffix for name in names} == {".json", ".safetensors"}
    assert not hasattr(checkpoint, "pickle")
