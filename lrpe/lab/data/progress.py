"""Progress of anything long: a bar on a terminal, now and then a line elsewhere, always on stderr."""

import sys
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")
SECONDS = 10.0  # between two lines where there is no terminal


def progress(items: Iterable[Item], what: str, total: int | None = None, unit: str = "it") -> Iterator[Item]:
    """The items, while a bar tells how many have gone by."""
    total = len(items) if total is None and hasattr(items, "__len__") else total  # type: ignore[arg-type]
    if sys.stderr.isatty():
        yield from tqdm(items, desc=what, total=total, unit=unit, leave=False, dynamic_ncols=True)
        return
    last = monotonic()
    for done, item in enumerate(items, 1):
        yield item
        if monotonic() - last >= SECONDS:
            last = monotonic()
            print(f"{what}: {done}{'' if total is None else f' of {total}'} {unit}", file=sys.stderr, flush=True)
