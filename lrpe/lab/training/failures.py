"""Failures across processes: find processes that no longer answer, and report a shared error once."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from queue import Empty, Queue
from typing import Any

from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]

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
        return answers.get(timeout=2 * _ROLL_CALL + count)
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
    """Whether this process is the first under torchrun to report this text; always true without torchrun."""
    if "MASTER_ADDR" not in os.environ or "RANK" not in os.environ:
        return True
    key = sha256(f"{os.environ.get('TORCHELASTIC_RESTART_COUNT')} {text}".encode()).hexdigest()
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        store = TCPStore(*place, is_master=False, timeout=timedelta(seconds=5), wait_for_workers=False)
        return store.add(f"lrpe/said/{key}", 1) == 1
    except RuntimeError:  # the store is gone: better to report twice than never
        return True
