"""Cells in processes of their own: each fails alone, and none outlives whoever started it."""

import os
import signal
import time
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import pytest

from lrpe.errors import StoppedError
from lrpe.lab.data.jobs import end_with_parent
from lrpe.lab.experiments.pool import KILLED, run_apart


class Cell(NamedTuple):
    method: str
    seed: int = 0

    @property
    def name(self) -> str:
        return f"{self.method}-seed{self.seed}"


def cells(*methods: str) -> list[Cell]:
    return [Cell(method) for method in methods]


def act(cell: Cell, runs: Path, _: str) -> str | None:
    """What a cell does here is told by its method."""
    (runs / f"{cell.method}-{os.getpid()}").touch()
    return {"base": lambda: None, "rope": fail, "spe": die, "type1": lambda: save(runs), "type2": never_end}[
        cell.method
    ]()


def fail() -> str:
    return "it failed"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def save(runs: Path) -> None:
    """Train until asked to end, then save, as the loop does."""
    signal.signal(signal.SIGTERM, lambda *_: (runs / "asked").touch())
    (runs / "ready").touch()
    while not (runs / "asked").exists():
        time.sleep(0.01)
    (runs / "saved").touch()
    raise StoppedError("stopped")


def never_end() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def nobody(*_) -> None:
    pass


def pids(runs: Path, method: str) -> list[int]:
    return [int(file.name.rpartition("-")[2]) for file in runs.glob(f"{method}-*")]


def wait_until(holds, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert holds()


def is_alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_cell_that_fails_or_is_killed_takes_no_other_with_it(tmp_path):
    failures = run_apart(act, cells("spe", "rope", "base"), tmp_path, 2, "cpu", nobody)
    assert failures == {"spe-seed0": KILLED, "rope-seed0": "it failed"}
    assert pids(tmp_path, "base")


def test_an_interruption_lets_a_cell_save_itself(tmp_path):
    def interrupt(*_):
        if (tmp_path / "ready").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_apart(act, cells("type1", "base"), tmp_path, 1, "cpu", interrupt)
    assert (tmp_path / "saved").exists()
    assert not pids(tmp_path, "base")  # what was not begun never begins
    assert not is_alive(pids(tmp_path, "type1")[0])


def test_a_second_interruption_ends_what_does_not_end_itself(tmp_path, interruptible):
    def interrupt_twice(*_):
        if len(pids(tmp_path, "type2")) == 2:
            signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
            signal.alarm(1)  # while the first is waited for
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_apart(act, [Cell("type2"), Cell("type2", 1)], tmp_path, 2, "cpu", interrupt_twice)
    assert not any(is_alive(pid) for pid in pids(tmp_path, "type2"))


def start_two(runs: Path) -> None:
    run_apart(act, cells("type1", "base"), runs, 2, "cpu", nobody)


def test_a_cell_does_not_outlive_a_parent_that_was_killed(tmp_path):
    parent = get_context("spawn").Process(target=start_two, args=(tmp_path,))
    parent.start()
    wait_until(lambda: (tmp_path / "ready").exists())
    parent.kill()
    parent.join()
    wait_until(lambda: not is_alive(pids(tmp_path, "type1")[0]))
    assert (tmp_path / "saved").exists()


def sit(runs: Path) -> None:
    end_with_parent()
    (runs / f"type3-{os.getpid()}").touch()
    time.sleep(600)


def sit_below(runs: Path) -> None:
    children = [get_context("fork").Process(target=sit, args=(runs,)) for _ in range(2)]
    for child in children:
        child.start()
    children[0].join()


def test_forked_processes_end_with_their_parent(tmp_path):
    """As the workers of a data loader are forked, each of which holds open what tells the others of the parent."""
    parent = get_context("spawn").Process(target=sit_below, args=(tmp_path,))
    parent.start()
    wait_until(lambda: len(pids(tmp_path, "type3")) == 2)
    parent.kill()
    parent.join()
    wait_until(lambda: not any(is_alive(pid) for pid in pids(tmp_path, "type3")))
