"""A process that is lost is named, and what all processes have to say is said once."""

import os
import signal
import time
from pathlib import Path

import pytest

from lrpe import LrpeError
from lrpe.lab.training.processes import barrier, is_first_to_report, name_lost_processes, process_group, rank
from tests.lab.training.forked import CONTEXT, fork, free_port, kill

pytestmark = pytest.mark.slow


def go(number: int, port: int, timeout: float, folder: Path, freeze: int) -> None:
    """Three processes that meet again and again, of which one freezes."""
    told = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": 3, "MASTER_PORT": port, "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {name: str(value) for name, value in told.items()}
    try:
        with process_group(timeout):
            barrier()
            if rank() == freeze:
                os.kill(os.getpid(), signal.SIGSTOP)
            barrier()
    except LrpeError as error:
        (folder / f"said-{number}").write_text(str(error))


@pytest.mark.parametrize("freeze", [0, 2])
def test_a_frozen_process_is_named_by_the_others(tmp_path, freeze):
    port = free_port()
    several = [CONTEXT.Process(target=go, args=(number, port, 3.0, tmp_path, freeze)) for number in range(3)]
    for process in several:
        process.start()
    others = [number for number in range(3) if number != freeze]
    deadline = time.monotonic() + 100
    while len(list(tmp_path.glob("said-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    kill(several)
    for number in others:
        said = (tmp_path / f"said-{number}").read_text()
        assert f"Process {freeze} of 0 ... 2 has ended, or has not answered for 3 seconds (--training.timeout)" in said


def test_an_error_of_another_kind_is_left_as_it_is():
    with pytest.raises(RuntimeError, match="out of memory"), name_lost_processes(None, 0, 1, 1.0):
        raise RuntimeError("out of memory")


def say(folder: Path) -> None:
    """What all say, and what one says alone."""
    barrier()
    for text in ("the same", f"from {rank()}"):
        if is_first_to_report(text):
            (folder / f"{text}-{os.getpid()}").touch()
    barrier()


def test_what_all_processes_say_is_said_once(tmp_path):
    several = fork(say, 2, tmp_path)
    for process in several:
        process.join(100)
    kill(several)
    names = [file.name.rpartition("-")[0] for file in tmp_path.iterdir()]
    assert sorted(names) == ["from 0", "from 1", "the same"]


def test_alone_everything_is_said(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert is_first_to_report("this")
    assert is_first_to_report("this")
