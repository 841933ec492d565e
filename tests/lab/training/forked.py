"""Runs in processes of their own. They are forked from one that has imported everything, and so start at once."""

import os
import socket
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.lab.training.small_run"])


def start(folder: Path, processes: int = 1, dropout: float = 0.0, **changes: Any) -> list[BaseProcess]:
    """The small run in that folder, on so many processes, with changes of its training."""
    return fork(run_small, processes, folder, dropout, changes)


def run_small(folder: Path, dropout: float, changes: dict[str, Any]) -> None:
    from tests.lab.training.small_run import run, small_training

    run(folder, small_training(**changes), dropout)


def fork(act: Callable[..., None], processes: int, *args: Any) -> list[BaseProcess]:
    """Processes that act together, told what torchrun would tell them if they are several."""
    return fork_alone(join_and, processes, act, args)


def join_and(act: Callable[..., None], args: tuple[Any, ...]) -> None:
    from lrpe.lab.training.processes import process_group

    with process_group():
        act(*args)


def fork_alone(act: Callable[..., None], processes: int, *args: Any) -> list[BaseProcess]:
    """The same, but they join no process group: what they run does."""
    port = free_port()
    several = [CONTEXT.Process(target=go, args=(act, rank, processes, port, args)) for rank in range(processes)]
    for process in several:
        process.start()
    return several


def go(act: Callable[..., None], rank: int, processes: int, port: int, args: tuple[Any, ...]) -> None:
    import torch

    torch.set_num_threads(1)
    if processes > 1:
        told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_PORT": port}
        os.environ |= {name: str(value) for name, value in told.items()} | {"MASTER_ADDR": "127.0.0.1"}
    act(*args)


def kill(several: Sequence[BaseProcess]) -> None:
    """SIGKILL, to all of them."""
    for process in several:
        process.kill()
    for process in several:
        process.join()


def finish(several: Sequence[BaseProcess], seconds: float = 120.0) -> None:
    for process in several:
        process.join(seconds)
    codes = [process.exitcode for process in several]
    kill(several)
    assert codes == [0] * len(several), codes


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
