"""A run that is killed at random moments, again and again, ends as one that never was.

    python -m tests.lab.training.kill_often --kills 300 --processes 2 --parallel fsdp

What is compared is every loss, every metric and every weight, bit for bit.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.lab.training.forked import finish, kill, start
from tests.lab.training.small_run import assert_same_run


def kill_often(folder: Path, kills: int, seed: int = 0, processes: int = 1, **changes: Any) -> list[int]:
    """Kill runs so many times in all, a new one when one has ended; how often each was, all being as they should."""
    span = 0.0
    for name in ("whole", "again"):  # the first also waits for the imports
        started = time.monotonic()
        finish(start(folder / name, processes, dropout=0.1, **changes))
        span = time.monotonic() - started
    generator, counts = random.Random(seed), [0]
    while True:
        several = start(folder / f"run-{len(counts)}", processes, dropout=0.1, **changes)
        if sum(counts) < kills:
            several[0].join(generator.uniform(0, span))
        if sum(counts) == kills or not several[0].is_alive():
            finish(several)
            assert_same_run(folder / f"run-{len(counts)}", folder / "whole")
            assert_tidy(folder / f"run-{len(counts)}")
            if sum(counts) == kills:
                return counts
            counts.append(0)
        else:
            kill(several)
            counts[-1] += 1


def assert_tidy(folder: Path) -> None:
    """Nothing is left of what was begun."""
    names = {path.name for path in (folder / "checkpoints").iterdir()}
    assert len(names) <= 3
    assert all(name.startswith("step-") for name in names), names
    assert not [path.name for path in folder.glob(".*") if path.name != ".lock"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--parallel", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--updates", type=int, default=24)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        changes = {"updates": asked.updates, "save_every": 1, "parallel": asked.parallel}
        counts = kill_often(Path(place), asked.kills, asked.seed, asked.processes, **changes)
    print(f"{sum(counts)} kills of {len(counts)} runs ({', '.join(map(str, counts))}): all ended as if never killed.")
