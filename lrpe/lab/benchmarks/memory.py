"""Peak memory: as counted by torch's allocator, and as reported by the operating system."""

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import profile

from lrpe.lab.benchmarks.device import on_cuda


def peak_allocated(run: Callable[[], object]) -> int:
    """Return the peak bytes allocated by ``run``, including temporaries inside operators.

    Its return value stays alive until the end, as it would in a caller.
    """
    run()  # allocates what is made once and kept, such as a thread's workspace
    if on_cuda():
        return _peak_on_cuda(run)
    with profile(profile_memory=True) as profiled:
        kept = run()
    del kept
    results: Any = profiled.kineto_results  # type: ignore[union-attr]
    events = [event for event in results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def peak_resident(run: Callable[[], object]) -> int | None:
    """Return the growth in resident memory at its peak during ``run``, in bytes; None except on Linux.

    Inputs count only if ``run`` creates them. On a GPU it is the memory of torch's allocator there.
    """
    if on_cuda():
        return _peak_on_cuda(run)
    if sys.platform != "linux":
        return None
    _give_back()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, the peak, to the current size
    run()
    peak = _status("VmHWM") - before
    _give_back()
    return peak


def resident() -> int:
    """Return the resident memory of this process in bytes, 0 except on Linux."""
    return _status("VmRSS") if sys.platform == "linux" else 0


def _peak_on_cuda(run: Callable[[], object]) -> int:
    """Return the peak bytes that torch allocated on the GPU during ``run``, beyond those before it."""
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = run()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    del kept
    return peak


def _give_back() -> None:
    """Return freed memory to the operating system, so that it does not hide new allocations."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _status(field: str) -> int:
    """Return a field of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)
