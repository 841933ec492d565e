"""Measure on several processes of their own, which share a row of tokens or, if there is one, has it alone."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

import torch

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks.process import pin, threads_in_use

SHARE_GOAL = 0.556  # 1 / 1.8: memory per process of two: 1.8 × the length in the memory of one
_T = TypeVar("_T")


def measure_on(count: int, measure: Callable[..., _T], *args: Any) -> list[_T]:
    """Return what ``measure(*args)`` returns on each of ``count`` new processes, which form a process group if several.

    Each process has processors of its own as far as there are any, and returns freed memory to the system at once.
    """
    spawn, threads = get_context("spawn"), torch.get_num_threads()
    answers = spawn.Queue()
    with _memory_returned(), threads_in_use(threads * count):
        where = (count, _free_port(), threads)
        several = [
            spawn.Process(target=_answer, args=(rank, where, measure, args, answers), daemon=True)
            for rank in range(count)
        ]
        for process in several:
            process.start()
    for process in several:
        process.join()
    if any(process.exitcode for process in several):
        raise LrpeError(f"One of {count} processes that measured has failed; its output is above.")
    return [answers.get() for _ in several]


@contextmanager
def _memory_returned() -> Iterator[None]:
    """Let processes that start here return freed tensors to the system, which ``environment`` lets them keep."""
    before = os.environ.pop("GLIBC_TUNABLES", None)
    os.environ["GLIBC_TUNABLES"] = f"glibc.malloc.mmap_threshold={2**18}"
    try:
        yield
    finally:
        os.environ.pop("GLIBC_TUNABLES")
        if before is not None:
            os.environ["GLIBC_TUNABLES"] = before


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _answer(rank: int, where: tuple[int, int, int], measure: Callable[..., Any], args: tuple, answers: Any) -> None:
    """Measure on this process, with the others if there are any."""
    from lrpe.lab.training.processes import process_group

    count, port, threads = where
    pin(threads * count)
    torch.set_num_threads(threads)
    if count > 1:
        told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ |= {name: str(value) for name, value in told.items()}
    with process_group():
        answers.put(measure(*args))
