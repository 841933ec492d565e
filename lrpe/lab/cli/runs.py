"""``lrpe runs``: list runs with their status and results."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from lrpe.errors import require
from lrpe.lab.aligned import in_columns


@dataclass(frozen=True)
class Runs:
    """List the runs in a folder with their status and best validation result.

    A run is running, finished, diverged, interrupted (the same command resumes it) or damaged.

    Attributes:
        runs: folder with all runs.
        json: print JSON instead of a table.
    """

    needs: ClassVar[tuple[str, ...]] = ("train",)
    runs: Path = Path("runs")
    json: bool = False

    def run(self) -> int:
        from lrpe.lab.experiments.runs_on_disk import list_runs

        require(self.runs.is_dir(), f"--runs must be a folder; got --runs {str(self.runs)!r}.")
        found = list_runs(self.runs)
        if self.json:
            print(json.dumps([asdict(run) for run in found], indent=2))
            return 0
        rows = [[run.name, run.status, f"{run.updates:,}", run.best, run.written] for run in found]
        print(in_columns(["run", "status", "updates", "best validation", "last written"], rows, left=2))
        for problem in (problem for run in found for problem in run.problems):
            print(problem, file=sys.stderr)
        return 0
