"""A lock between processes whose waiting is not silent: it says who holds the lock, and for how long."""

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from lrpe.errors import LrpeError
from lrpe.typed import read_json

SECONDS = 30.0  # between two lines of one that waits


@contextmanager
def waiting_lock(file: Path, what: str) -> Iterator[None]:
    """Hold a lock, waiting for it if another process has it; ``what`` is what that one prepares.

    The holder's process is named in a file beside the lock, which lives as long as the lock is held. The system frees
    the lock of a process that was killed.
    """
    lock, holder = FileLock(file), file.with_suffix(".holder")
    _acquire(lock, holder, what)
    try:
        holder.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _acquire(lock: FileLock, holder: Path, what: str) -> None:
    wait = 0.5  # nobody wants to read of a shorter wait
    while True:
        try:
            lock.acquire(timeout=wait)
            return
        except Timeout:
            print(f"Waiting for {_describe(holder)}, which prepares {what} ...", file=sys.stderr, flush=True)
            wait = SECONDS


def _describe(holder: Path) -> str:
    try:
        found = read_json(holder, dict)
        minutes, seconds = divmod(int(time.time() - found["since"]), 60)
        return f"process {found['pid']} on {found['host']}, for {minutes} min {seconds} s"
    except (LrpeError, KeyError, TypeError):  # it has only just begun, or ended
        return "another process"
