"""``lrpe demo``: train the paper's seven methods at a small scale, in a few minutes."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from lrpe.errors import require
from lrpe.lab.cli.table import MakeTable
from lrpe.schema import Range, Seed


@dataclass(frozen=True)
class RunDemo:
    """Train the paper's seven methods on Python's standard library, print the table and write a page.

    It takes a few minutes on two cores; finished methods are not trained again. The same as lrpe table lm --scale demo,
    the paper's first table.

    Attributes:
        runs: folder for the runs and the page.
        updates: number of updates per method; 400 if not given.
        processes: number of methods to train at the same time; one per processor, at most 4, if not given.
        seed: seed of weights and data.
    """

    needs: ClassVar[tuple[str, ...]] = ("train",)
    runs: Path = Path("runs")
    updates: Annotated[int, Range(6, 10**9)] | None = None
    processes: Annotated[int, Range(1, 1024)] | None = None
    seed: Seed = 0

    def run(self) -> int:
        return MakeTable(
            name=["lm"],
            scale="demo",
            seeds=str(self.seed),
            processes=self.processes or min(4, os.cpu_count() or 1),
            runs=self.runs,
            changes={} if self.updates is None else shorter(self.updates),
        ).run()


def shorter(updates: int) -> dict[str, str]:
    """Return the changes for another number of updates, with a variant so that folders differ."""
    require(updates >= 6, f"updates must be at least 6, one per point of the curve; got updates={updates}.")
    return {
        "variant": f"{updates}-updates",
        "training.evaluate_every": str(updates // 6),
        "training.optimization.updates": str(updates),
        "training.optimization.warmup": str(updates // 10),
    }
