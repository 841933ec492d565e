"""Long jobs: progress on stderr, work shared among processes with results in order, and processes that end together."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import parent_process
from time import monotonic, sleep
from typing import Annotated, TypeVar

from tqdm import tqdm

from lrpe.errors import LrpeError
from lrpe.schema import Range

Processes = Annotated[int, Range(1, 1024)]
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_SECONDS = 10.0  # between two lines without a terminal


def progress(items: Iterable[_Item], what: str, total: int | None = None, unit: str = "it") -> Iterator[_Item]:
    """Yield the items and report progress: a bar on a terminal, otherwise a line every ten seconds."""
    total = len(items) if total is None and hasattr(items, "__len__") else total  # type: ignore[arg-type]
    if sys.stderr.isatty():
        yield from tqdm(items, desc=what, total=total, unit=unit, leave=False, dynamic_ncols=True)
        return
    last = monotonic()
    for done, item in enumerate(items, 1):
        yield item
        if monotonic() - last >= _SECONDS:
            last = monotonic()
            print(f"{what}: {done}{'' if total is None else f' of {total}'} {unit}", file=sys.stderr, flush=True)


def in_parallel(
    function: Callable[[_Item], _Result],
    items: Sequence[_Item],
    what: str,
    processes: int | None = None,
    unit: str = "it",
) -> Iterator[_Result]:
    """Yield ``function(item)`` for each item, in order, computed by several processes.

    Args:
        function: must depend on its item alone, so that results are the same for any number of processes.
        items: its arguments.
        what: what is made, for progress and errors.
        processes: how many; one per available core if None.
        unit: the unit of progress.

    Raises:
        LrpeError: a process was killed.
    """
    count = min(len(items), _cores() if processes is None else processes)
    if count <= 1:
        yield from progress(map(function, items), what, len(items), unit)
        return
    pool = ProcessPoolExecutor(count, initializer=_follow_parent)
    try:
        yield from progress(pool.map(function, items), what, len(items), unit)
    except BrokenProcessPool:
        raise LrpeError(
            f"A process that makes {what} was killed, perhaps because memory ran out. Run the same command again, with "
            "fewer processes if it happens again (--options processes=1)."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _follow_parent() -> None:
    """Ignore Ctrl-C, which the parent handles, and end when the parent ends, even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent's handler raises, which a pool's worker would survive
    end_with_parent()


def end_with_parent(grace: float = 0.0) -> None:
    """End this process when its parent ends, even if that is killed: a thread waits for it.

    Args:
        grace: seconds between SIGTERM, on which the process may save its work, and its end; 0 ends it at once.
    """
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_end, args=(parent, grace), daemon=True).start()


def _wait_and_end(parent, grace: float) -> None:
    parent.join()
    if grace:
        os.kill(os.getpid(), signal.SIGTERM)
        sleep(grace)
    os._exit(1)
