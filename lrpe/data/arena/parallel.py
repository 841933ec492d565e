"""Work that is shared out to processes, and comes back in order."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from lrpe.data.progress import progress

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    what: str,
    processes: int | None = None,
    unit: str = "it",
) -> Iterator[Result]:
    """``function`` of each item, in the order of the items, by ``processes`` (every core of ours if it is None).

    What comes out is the same for any number of processes, so long as the function depends on its item alone.
    """
    count = min(len(items), cores() if processes is None else processes)
    if count <= 1:
        yield from progress(map(function, items), what, len(items), unit)
        return
    with multiprocessing.Pool(count) as pool:
        yield from progress(pool.imap(function, items), what, len(items), unit)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
