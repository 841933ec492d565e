"""Memory: what the allocator gave out, and what the system says that the process holds."""

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.autograd.profiler import profile


def peak_allocated(run: Callable[[], object]) -> int:
    """The most bytes that ``run`` held at any moment beyond what was there before, temporaries within operators too.

    What it returns is held until it ends, as a caller would.
    """
    run()  # whatever is made once and kept, such as a thread's workspace
    with profile(profile_memory=True) as found:
        kept = run()
    del kept
    results: Any = found.kineto_results  # type: ignore[union-attr]
    events = [event for event in results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def peak_resident(run: Callable[[], object]) -> int | None:
    """The most bytes of memory that the process held during ``run`` beyond what it held before; None if not on Linux.

    All that ``run`` makes counts, its inputs too if it makes them.
    """
    if sys.platform != "linux":
        return None
    _give_back()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from here
    run()
    peak = _status("VmHWM") - before
    _give_back()
    return peak


def _give_back() -> None:
    """Return what is free to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _status(field: str) -> int:
    """A field of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)
