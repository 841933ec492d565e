"""The processes of a run: alone, or those that torchrun started."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from lrpe.errors import LrpeError
from lrpe.lab.training.failures import name_lost_processes

TIMEOUT = 1800.0  # seconds; gloo's own
_T = TypeVar("_T")


@contextmanager
def process_group(timeout: float = TIMEOUT) -> Iterator[torch.device]:
    """Join the processes that torchrun started, if it did, and leave them at the end; gives this one's device.

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
    """A GPU for each process of a machine; the CPU where there is none."""
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
    """Each of these, added up over all processes."""
    if not dist.is_initialized():
        return numbers
    sums = torch.tensor(numbers, dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    return sums.tolist()


def run_on_first(act: Callable[[], _T]) -> _T:
    """What the first process finds, on every process; and its error, so that none is left waiting for it."""
    if not dist.is_initialized():
        return act()
    told: list[Any] = [None, None]
    if rank() == 0:
        try:
            told[0] = act()
        except LrpeError as error:
            told[1] = str(error)
    dist.broadcast_object_list(told)
    if told[1] is not None:
        raise LrpeError(told[1])
    return told[0]


def run_on_every(act: Callable[[], None]) -> None:
    """Act on every process. If one fails all of them raise its error, so that none is left waiting for it."""
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
    """Whether the run was asked to end, which it does after the update that is under way.

    A second Ctrl-C ends it at once, unless torchrun is there: it passes on to us what we have had from the terminal.
    A signal that this process ignores stays ignored: it is for the process that started it.
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
