"""A process of its own for each measurement: threads, allocator and processors are set before torch starts."""

import json
import os
import subprocess
import sys
from typing import Any

import torch

from lrpe.errors import LrpeError, require

_QUIET = {"KINETO_LOG_LEVEL": "99"}  # the profiler that counts memory has nothing to say that a user wants to read


def environment(threads: int) -> dict[str, str]:
    """What a measurement needs to be told before it starts.

    glibc gives large allocations back to the system at once, and every new page then costs a fault: a clone of 64 MB
    takes six times as long as a copy. The two thresholds make it keep them, as a long training does by itself.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184",
    }


def measure_apart(benchmark: str, threads: int = 1, **options: Any) -> tuple[dict[str, Any], str]:
    """Run a benchmark in a process of its own: its result, JSON-friendly, and the same as text."""
    require(threads >= 1, f"A measurement has one thread or more; got threads={threads}.")
    request = json.dumps({"benchmark": benchmark, "threads": threads, "options": options})
    child = subprocess.run(
        [sys.executable, "-m", "lrpe.lab.benchmarks", request],
        env=os.environ | environment(threads) | _QUIET,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C reaches this process, which ends the other
    )
    if child.returncode != 0:
        raise LrpeError(f"The process that measured {benchmark!r} ended with code {child.returncode}.")
    reply = json.loads(child.stdout.splitlines()[-1])
    if "error" in reply:
        raise LrpeError(reply["error"])
    if "missing" in reply:
        raise ModuleNotFoundError(f"The measurement of {benchmark!r} needs {reply['missing']}.", name=reply["missing"])
    return reply["result"], reply["text"]


def pin(threads: int) -> None:
    """Keep this process to as many threads, each on a processor that it may use, where the system lets us choose."""
    torch.set_num_threads(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])


def read_settings() -> dict[str, Any]:
    """What is in fact set in this process."""
    names = environment(1)
    return {
        "threads": torch.get_num_threads(),
        "processors": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "environment": {name: os.environ.get(name) for name in names},
    }


def describe_settings(found: dict[str, Any]) -> str:
    variables = " ".join(f"{name}={value}" for name, value in found["environment"].items())
    return f"Set: threads={found['threads']} processors={found['processors']} {variables}"
