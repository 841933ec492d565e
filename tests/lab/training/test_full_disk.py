"""A disk that is full stops a run and costs it nothing that it had saved."""

import errno
import os
import sys
from pathlib import Path

import pytest
from safetensors import SafetensorError

import lrpe.atomic
from lrpe import LrpeError
from lrpe.lab.training import checkpoint, run_files
from lrpe.lab.training.checkpoint import CheckpointHistory
from tests.lab.training.small_run import assert_same_run, run, small_training

pytestmark = pytest.mark.slow

OFTEN = small_training(save_every=2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run(folder, OFTEN)
    return folder


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_in_rust(*_, **__):
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def after(times, act, fail):
    """What works so many times and then fails."""
    left = iter(range(times))

    def call(*args, **kwargs):
        return act(*args, **kwargs) if next(left, None) is not None else fail()

    return call


WAYS = {
    "the optimiser": (checkpoint, "save_file", 2, full_in_rust),
    "the weights": ("transformers.modeling_utils", "safe_save_file", 1, full_in_rust),
    "the mark of a whole one": (checkpoint, "_hashes", 2, full),
    "the disk's own memory": (lrpe.atomic, "sync", 17, full),
    "the metrics": (run_files, "write_all", 9, full),
    "an old metrics file": (run_files, "write_atomically", 0, full),
    "TensorBoard": (run_files, "write_all", 10, full),
}


@pytest.mark.parametrize("what", WAYS)
def test_a_run_stops_says_why_and_goes_on_when_there_is_room(tmp_path, whole, monkeypatch, what):
    where, name, times, fail = WAYS[what]
    module = sys.modules[where] if isinstance(where, str) else where
    with monkeypatch.context() as patch:
        patch.setattr(module, name, after(times, getattr(module, name), fail))
        with pytest.raises(LrpeError, match=r"could not be written: .*No space left .* run the same command to resume"):
            run(tmp_path, OFTEN)
    assert not list((tmp_path / "checkpoints").glob(".*"))
    saved = CheckpointHistory(tmp_path).find_newest()
    assert saved is None or saved.update % 2 == 0
    run(tmp_path, OFTEN)
    assert_same_run(tmp_path, whole)


def test_a_real_disk_that_is_full_is_survived_again_and_again(small_disk, whole):
    folder, enlarge = small_disk
    problems = []
    for kilobytes in range(40, 4000, 20):
        enlarge(kilobytes)
        problems.append(problem_of_run(folder / "run"))
        if not problems[-1]:
            break
    assert len(problems) > 2
    assert all("No space left" in problem for problem in problems[:-1])
    assert_same_run(folder / "run", whole)


def problem_of_run(folder: Path) -> str:
    try:
        run(folder, OFTEN)
    except LrpeError as error:
        return str(error)
    return ""
