"""Hosts of our own: namespaces with a network card each, whose cables end in a switch, which is a namespace too.

A process holds each namespace. When it ends, the kernel ends every process of that host and removes its network; it
ends with the tests, even if they are killed. Nothing has a name that could be left behind, and no packet leaves.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

_OWN = ("--net", "--uts", "--mount", "--pid")
_PROBE = """
mount --bind /etc/hosts /etc/hosts && hostname probe &&
ip link add switch type bridge && ip link add cable type veth peer name card && cat /proc/1/task/1/children
"""


def require_namespaces() -> None:
    """Skip the test where hosts cannot be made: only root makes namespaces, and only on Linux."""
    lacking = [tool for tool in ("ip", "unshare", "nsenter", "setpriv") if shutil.which(tool) is None]
    if sys.platform != "linux" or lacking:
        pytest.skip(f"hosts of our own are made on Linux, by iproute2 and util-linux; missing: {lacking}")
    probe = subprocess.run(
        ["unshare", *_OWN, "--fork", "--kill-child", "--mount-proc", "sh", "-c", _PROBE],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    if probe.returncode != 0:
        pytest.skip(f"network namespaces are not permitted here: {probe.stderr.strip()}")


class Host:
    """A host with this name, and with an address if it is not the switch."""

    def __init__(self, name: str, address: str, names: Path):
        self.name, self.address = name, address
        begin = f"mount --bind {names} /etc/hosts && hostname {name} && ip link set lo up && exec sleep infinity"
        held = ["setpriv", "--pdeathsig", "KILL", "unshare", *_OWN, "--fork", "--kill-child", "--mount-proc"]
        self.holder = subprocess.Popen([*held, "sh", "-c", begin])
        children = Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        wait_until(lambda: children.read_text() != "", 10)
        self.first = int(children.read_text())  # the host's process 1, as it is seen from here
        wait_until(lambda: Path(f"/proc/{self.first}/comm").read_text() == "sleep\n", 10)

    def inside(self, *command: str) -> list[str]:
        return ["nsenter", f"--target={self.first}", *_OWN, "--", *command]

    def run(self, *command: str) -> None:
        subprocess.run(self.inside(*command), check=True, timeout=10)

    def start(self, command: Sequence[str], log: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen(self.inside(*command), env=os.environ | variables, stdout=out, stderr=out)

    def ranks(self) -> dict[int, int]:
        """Return the processes of torchrun on this host, as they are seen from here, by their rank."""
        here, found = os.readlink(f"/proc/{self.first}/ns/net"), {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                inside = os.readlink(process / "ns/net") == here
                variables = (process / "environ").read_bytes().split(b"\0") if inside else []
            except OSError:  # it has ended
                continue
            found |= {int(each[5:]): int(process.name) for each in variables if each.startswith(b"RANK=")}
        return found

    def switch_off(self) -> None:
        self.holder.kill()
        self.holder.wait()
        wait_until(lambda: not Path(f"/proc/{self.first}").exists(), 10)


class Network:
    """Two hosts and the switch between them."""

    def __init__(self, folder: Path, stack: ExitStack):
        names = folder / "hosts"
        names.write_text("127.0.0.1 localhost\n10.0.0.1 first\n10.0.0.2 second\n")
        self.switch, *self.hosts = (
            stack.enter_context(_switched_on(Host(*each, names)))
            for each in (("switch", ""), ("first", "10.0.0.1"), ("second", "10.0.0.2"))
        )
        self.switch.run("ip", "link", "add", "bridge", "type", "bridge")
        self.switch.run("ip", "link", "set", "bridge", "up")
        for host in self.hosts:
            card = ("type", "veth", "peer", "name", "eth0", "netns", str(host.first))
            # Not inside its processes, where the number of another host's first process means nothing.
            enter = ["nsenter", f"--target={self.switch.first}", "--net"]
            subprocess.run([*enter, "ip", "link", "add", host.name, *card], check=True, timeout=10)
            self.switch.run("ip", "link", "set", host.name, "master", "bridge", "up")
            host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
            host.run("ip", "link", "set", "eth0", "up")

    def unplug(self, host: Host) -> None:
        """Unplug its cable at the switch: the host keeps its card and its address."""
        self.switch.run("ip", "link", "set", host.name, "down")

    def plug_in(self, host: Host) -> None:
        self.switch.run("ip", "link", "set", host.name, "up")


@contextmanager
def network(folder: Path) -> Iterator[Network]:
    with ExitStack() as stack:
        yield Network(folder, stack)


@contextmanager
def _switched_on(host: Host) -> Iterator[Host]:
    try:
        yield host
    finally:
        host.switch_off()


def wait_until(is_so: Callable[[], bool], seconds: float) -> float:
    """Return how long it took until something was so, and fail if it took longer than that."""
    started = time.monotonic()
    while not is_so():
        assert time.monotonic() - started < seconds, f"not within {seconds:g} seconds"
        time.sleep(0.02)
    return time.monotonic() - started
