"""``lrpe demo``: the paper's seven methods, small, in a few minutes."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from lrpe.errors import require
from lrpe.lab.cli.table import MakeTable
from lrpe.schema import Range, Seed


@dataclass(frozen=True)
class RunDemo:
    """Train the paper's seven methods on the text that every machine has, print the table and write a page.

    It takes a few minutes on two cores; what is trained already is not trained again. It is the paper's first table
    on Python's standard library: lrpe table lm --scale demo.

    Attributes:
        runs: the folder for the runs and the page.
        updates: of each method; those of the scale demo, 400, if not given.
        processes: methods that train at once; as many as there are processors, at most 4, if not given.
        seed: of weights and data.
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
    """Another number of updates, in folders of their own."""
    require(updates >= 6, f"The curve has six points, so there are 6 updates or more; got {updates}.")
    return {
        "variant": f"{updates}-updates",
        "training.evaluate_every": str(updates // 6),
        "training.optimization.updates": str(updates),
        "training.optimization.warmup": str(updates // 10),
    }
