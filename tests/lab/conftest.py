"""A disk that can be filled, for tests of what happens then."""

import os
import subprocess
import sys

import pytest


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
