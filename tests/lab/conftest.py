"""A disk that can be filled, one small run per file of tests, and signals that are heard."""

import os
import signal
import subprocess
import sys

import pytest

from lrpe.lab.cli import main


@pytest.fixture
def small_disk(tmp_path):
    """Return a file system of its own, of 8 kB at first, and a function that changes its size in kB."""

    def mount(options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(tmp_path)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    if sys.platform != "linux" or os.geteuid() != 0 or not mount("size=8k"):
        pytest.skip("only root can mount a small disk, and only on Linux")
    yield tmp_path, lambda kilobytes: mount(f"remount,size={kilobytes}k")
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def trained(runs):
    assert main(["train", "stdlib", "--method", "type2", "--scale", "smoke", "--runs", str(runs)]) == 0
    return runs / "stdlib" / "smoke-fair" / "type2-seed0"


@pytest.fixture
def interruptible():
    """Ctrl-C raises, even if the tests run in the background, where a shell lets them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
