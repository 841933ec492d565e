"""The tutorial's command on two hosts: a cable is unplugged, a process is lost, none waits forever, the run resumes."""

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from lrpe.lab.cli import main
from tests.lab.training.hosts import Network, network, require_namespaces, wait_until
from tests.lab.training.small_run import lines

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
TUTORIAL = (ROOT / "docs/tutorials/many-machines.md").read_text()
(COMMAND,) = re.findall(r"^torchrun (--nnodes 2 --node-rank 0 .*)$", TUTORIAL, re.MULTILINE)
LONG = ["--training.optimization.updates", "300", "--training.save_every", "10", "--training.evaluate_every", "300"]
TIMEOUT, ROLL_CALL, ENDING = 15.0, 9.0, 20.0  # seconds: --training.timeout, to name who is lost, for torchrun to end


class Several:
    """The tutorial's command on every host, until all have ended."""

    def __init__(self, net: Network, folder: Path, name: str):
        self.logs, self.metrics = (
            [folder / f"{name}-{host.name}.log" for host in net.hosts],
            folder / "run/metrics.jsonl",
        )
        self.started, python = time.monotonic(), [sys.executable, "-m", "torch.distributed.run"]
        self.torchruns = []
        for i, (host, log) in enumerate(zip(net.hosts, self.logs, strict=True)):
            words = COMMAND.replace("--node-rank 0", f"--node-rank {i}").split()
            words += [*LONG, "--training.timeout", f"{TIMEOUT:g}", "--out", str(folder / "run")]
            variables = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
            self.torchruns.append(host.start([*python, *words], log, variables))

    def updates(self) -> int:
        return len(lines(self.metrics.parent)) if self.metrics.exists() else 0

    def wait_for_updates(self, more: int, seconds: float = 90.0) -> None:
        """Wait until the run has made more updates than before, or fail with what was said."""
        wanted = self.updates() + more
        wait_until(lambda: self.updates() >= wanted or self.ended(), seconds)
        assert not self.ended(), self.said()

    def ended(self) -> bool:
        return any(each.poll() is not None for each in self.torchruns)

    def wait(self, seconds: float) -> list[int]:
        """Return the exit codes of all, which must end within this time."""
        wait_until(lambda: all(each.poll() is not None for each in self.torchruns), seconds)
        return [each.returncode for each in self.torchruns]

    def said(self) -> list[str]:
        return [log.read_text() for log in self.logs]


def lost(number: int) -> str:
    return (
        f"lrpe: Process {number} of 0 ... 1 has ended, or has not answered for {TIMEOUT:g} seconds (--training.timeout)"
    )


def test_a_run_on_two_hosts_survives_a_cable_and_a_kill(tmp_path):
    require_namespaces()
    with network(tmp_path) as net:
        _, second = net.hosts

        several = Several(net, tmp_path, "unplugged")
        several.wait_for_updates(5)
        net.unplug(second)  # and plugged in again before the timeout: the run waits for it
        time.sleep(1)
        net.plug_in(second)
        several.wait_for_updates(15, seconds=20)
        net.unplug(second)  # in the middle of an update, as ever
        assert several.wait(TIMEOUT + ROLL_CALL + ENDING) == [1, 1]
        for text, other in zip(several.said(), (1, 0), strict=True):
            assert lost(other) in text

        net.plug_in(second)
        several = Several(net, tmp_path, "killed")
        several.wait_for_updates(5)
        os.kill(second.ranks()[1], signal.SIGKILL)
        assert several.wait(TIMEOUT + ROLL_CALL + ENDING) == [1, 1]
        assert lost(1) in several.said()[0]
    assert not any(Path(f"/proc/{host.first}").exists() for host in (*net.hosts, net.switch))
    assert "Resumed after update" in (tmp_path / "run/train.log").read_text()
    assert main([*COMMAND.partition("-m lrpe ")[2].split(), *LONG, "--out", str(tmp_path / "one")]) == 0
    made = lines(tmp_path / "run")
    assert 20 <= len(made) < 300
    for line, other in zip(made, lines(tmp_path / "one"), strict=False):
        assert line == pytest.approx(other, rel=1e-4, abs=1e-5)
