"""Processes that share out work: what they give, and what becomes of those that are killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lrpe import LrpeError
from lrpe.lab.data.jobs import in_parallel


def square_or_die(item):
    if item == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return item**2


def test_results_come_in_the_order_of_the_items():
    assert list(in_parallel(square_or_die, [4, 3, 1], "squares", processes=2)) == [16, 9, 1]


def die_or_work_on(item):
    if item == 0:
        time.sleep(0.3)  # until the other process has begun
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


@pytest.mark.parametrize("function", [square_or_die, die_or_work_on])
def test_a_process_that_was_killed_ends_the_work_with_a_sentence(function):
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as the command line does
    try:
        with pytest.raises(LrpeError, match=r"A process that makes squares was killed.*processes=1"):
            list(in_parallel(function, list(range(20)), "squares", processes=2))
    finally:
        signal.signal(signal.SIGTERM, before)


ORPHANS = """
import os, sys, time
from pathlib import Path
from lrpe.lab.data.jobs import in_parallel

def wait(item):
    (Path(sys.argv[1]) / str(os.getpid())).touch()
    time.sleep(600)

list(in_parallel(wait, [1, 2], "nothing", processes=2))
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
def test_no_process_outlives_the_one_that_shares_out_the_work(tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", ORPHANS, str(tmp_path)])
    assert wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    workers = [Path("/proc") / file.name / "stat" for file in tmp_path.iterdir()]
    parent.kill()
    parent.wait()
    assert wait_until(lambda: not any(is_running(worker) for worker in workers))


def is_running(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"  # a zombie has ended
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(holds, seconds=60) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()
