"""The processes of a run, one or those of torchrun: joining them, exchanging values, failing and stopping together."""

import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from queue import Empty, Queue
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from lrpe.errors import LrpeError

_ROLL_CALL = 5.0  # seconds to wait for processes to register after one seems lost
_LOST = re.compile(r"time[d ]*out|(closed|reset) by peer|broken pipe|connection (refused|closed)", re.IGNORECASE)


@contextmanager
def name_lost_processes(store: Any, number: int, count: int, timeout: float) -> Iterator[None]:
    """Turn a communication failure into an ``LrpeError`` that names the lost processes."""
    try:
        yield
    except RuntimeError as error:
        if not _LOST.search(str(error)):
            raise
        lost = _find_lost(store, number, count)
        named = f"Process {', '.join(map(str, lost))} of 0 ... {count - 1}" if lost else "Another process"
        raise LrpeError(
            f"{named} has ended, or has not answered for {timeout:g} seconds (--training.timeout). End the "
            "remaining processes and run the same command to resume from the last checkpoint."
        ) from error


def _find_lost(store: Any, number: int, count: int) -> list[int]:
    """Return the ranks of the processes that do not answer a roll call.

    The store lives in the first process, unless torchrun holds it. If that process is frozen, a request to the store
    blocks forever and ignores its timeout, so a thread makes it.
    """
    answers: Queue[list[int]] = Queue()
    threading.Thread(target=lambda: answers.put(_call_roll(store, number, count)), daemon=True).start()
    try:
        return answers.get(timeout=_ROLL_CALL + count + 2)
    except Empty:
        return [0]


def _call_roll(store: Any, number: int, count: int) -> list[int]:
    store.set(f"lrpe/here/{number}", "")
    patience = [_ROLL_CALL, *[1.0] * (count - 1)]  # the others register while we wait for the first
    return [each for each in range(count) if not _is_here(store, each, patience[each])]


def _is_here(store: Any, number: int, seconds: float) -> bool:
    try:
        store.wait([f"lrpe/here/{number}"], timedelta(seconds=seconds))
    except DistError:
        return False
    return True


def is_first_to_report(text: str) -> bool:
    """Return whether this is torchrun's first process to report this text; always true without torchrun."""
    if "MASTER_ADDR" not in os.environ or "RANK" not in os.environ:
        return True
    key = sha256(f"{os.environ.get('TORCHELASTIC_RESTART_COUNT')} {text}".encode()).hexdigest()
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        socket.create_connection(address, 1.0).close()  # TCPStore would try an unplugged host again and again
        store = TCPStore(*address, is_master=False, timeout=timedelta(seconds=5), wait_for_workers=False)
        return store.add(f"lrpe/said/{key}", 1) == 1
    except (RuntimeError, OSError):  # the store is gone: better to report twice than never
        return True


TIMEOUT = 1800.0  # seconds, the default of gloo
_T = TypeVar("_T")


@contextmanager
def process_group(timeout: float = TIMEOUT) -> Iterator[torch.device]:
    """Join torchrun's process group, if there is one, and yield this process's device.

    Args:
        timeout: seconds to wait for another process before it counts as lost.
    """
    device = local_device()
    if "RANK" not in os.environ:
        yield device
        return
    patience = timedelta(seconds=timeout)
    store, number, count = next(rendezvous("env://", timeout=patience))
    meeting = {"store": store, "rank": number, "world_size": count, "timeout": patience}
    if device.type == "cuda":
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device, **meeting)
    else:
        dist.init_process_group("gloo", **meeting)
    try:
        with name_lost_processes(store, number, count, timeout):
            yield device
    finally:
        dist.destroy_process_group()


def local_device() -> torch.device:
    """Return this process's GPU, or the CPU on a machine without one."""
    number = int(os.environ.get("LOCAL_RANK", 0))
    return torch.device("cuda", number) if torch.cuda.is_available() else torch.device("cpu")


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def sum_over_processes(numbers: list[float], device: torch.device) -> list[float]:
    """Return the sum of each number over all processes."""
    if not dist.is_initialized():
        return numbers
    sums = torch.tensor(numbers, dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    return sums.tolist()


def run_on_first(act: Callable[[], _T]) -> _T:
    """Call ``act`` on the first process and return its result, or raise its ``LrpeError``, on every process."""
    if not dist.is_initialized():
        return act()
    shared: list[Any] = [None, None]  # the result and the error
    if rank() == 0:
        try:
            shared[0] = act()
        except LrpeError as error:
            shared[1] = str(error)
    dist.broadcast_object_list(shared)
    if shared[1] is not None:
        raise LrpeError(shared[1])
    return shared[0]


def run_on_every(act: Callable[[], None]) -> None:
    """Call ``act`` on every process. If one raises an ``LrpeError`` all raise it, so that none waits for it forever."""
    if not dist.is_initialized():
        return act()
    problem = None
    try:
        act()
    except LrpeError as error:
        problem = str(error)
    problems: list[str | None] = [None] * world_size()
    dist.all_gather_object(problems, problem)
    for text in filter(None, problems):
        raise LrpeError(text)


class Stop:
    """Records that SIGTERM or Ctrl-C asked the run to stop, which it does after the current update.

    A second Ctrl-C ends it at once, except under torchrun, which forwards the signal that the terminal has already
    sent to every process. Signals that this process already ignores stay ignored: they are for its parent.
    """

    def __init__(self):
        self.asked = False

    def ask(self, number: int, *_: Any) -> None:
        if self.asked and number == signal.SIGINT and not dist.is_initialized():
            raise KeyboardInterrupt
        self.asked = True

    def __enter__(self) -> "Stop":
        heard = [n for n in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(n) is not signal.SIG_IGN]
        self.before = {number: signal.signal(number, self.ask) for number in heard}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
