"""Measure in a child process, whose threads, allocator and processors are set before torch starts."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lrpe.errors import LrpeError, require
from lrpe.lab.benchmarks.device import check_device, describe_device
from lrpe.plugins import loaded_plugins

# The processors that this process may use, before ``pin`` chooses among them; None where the system does not say.
_ALLOWED = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
_QUIET = {"KINETO_LOG_LEVEL": "99"}  # silences the log of the profiler that counts memory


def environment(threads: int) -> dict[str, str]:
    """Return the environment variables of a measurement.

    glibc returns large allocations to the system at once, and every new page then costs a page fault: cloning 64 MB
    takes six times as long as copying it. The two thresholds keep that memory, as happens in a long training anyway.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184",
    }


def measure_apart(benchmark: str, threads: int = 1, device: str = "cpu", **options: Any) -> tuple[dict[str, Any], str]:
    """Run a benchmark in a child process; return its result as JSON-compatible data and as text.

    Raises:
        LrpeError: the benchmark failed, or its process ended without a result.
        ModuleNotFoundError: a package that it needs is not installed.
    """
    require(threads >= 1, f"threads must be at least 1; got threads={threads}.")
    check_device(device)
    asked = {"benchmark": benchmark, "threads": threads, "device": device, "options": options}
    request = json.dumps(asked | {"plugins": [plugin.file for plugin in loaded_plugins()]})
    child = subprocess.run(
        [sys.executable, "-m", "lrpe.lab.benchmarks", request],
        env=os.environ | environment(threads) | _QUIET,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C reaches this process alone, and ``run`` then kills the child
    )
    if child.returncode != 0:
        raise LrpeError(
            f"The process that measured {benchmark!r} ended with code {child.returncode}; its output is above."
        )
    reply = json.loads(child.stdout.splitlines()[-1])
    if "error" in reply:
        raise LrpeError(reply["error"])
    if "missing" in reply:
        raise ModuleNotFoundError(f"The measurement of {benchmark!r} needs {reply['missing']}.", name=reply["missing"])
    return reply["result"], reply["text"]


def pin(threads: int) -> None:
    """Limit this process to ``threads`` threads and, where the system allows it, to as many processors."""
    torch.set_num_threads(threads)
    if _ALLOWED is not None:
        os.sched_setaffinity(0, _ALLOWED[-threads:])


def can_use_threads(threads: int) -> bool:
    """Return whether this process may use as many processors, as far as the system says."""
    return threads <= (len(_ALLOWED) if _ALLOWED is not None else os.cpu_count() or 1)


@contextmanager
def threads_in_use(threads: int) -> Iterator[None]:
    """Use another number of threads and processors inside the block."""
    before = torch.get_num_threads()
    processors = os.sched_getaffinity(0) if _ALLOWED is not None else None
    pin(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if processors is not None:
            os.sched_setaffinity(0, processors)


def read_settings() -> dict[str, Any]:
    """Return the device, threads, processors and environment variables in effect in this process."""
    names = environment(1)
    return {
        "device": describe_device(),
        "threads": torch.get_num_threads(),
        "processors": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "environment": {name: os.environ.get(name) for name in names},
    }


def describe_settings(settings: dict[str, Any]) -> str:
    variables = " ".join(f"{name}={value}" for name, value in settings["environment"].items())
    device = settings.get("device", "cpu")  # results from before there was a choice have none
    return f"Settings: device={device} threads={settings['threads']} processors={settings['processors']} {variables}"
