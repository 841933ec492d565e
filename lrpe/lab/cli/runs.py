"""``lrpe runs``, ``lrpe report`` and ``lrpe evaluate``: list runs, write a page about them, and score one again."""

import json
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

from lrpe.errors import require
from lrpe.lab.aligned import in_columns
from lrpe.lab.cli.table import command
from lrpe.lab.cli.train import show
from lrpe.lab.cli.words import one
from lrpe.schema import Range


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
        runs = list_runs(self.runs)
        if self.json:
            print(json.dumps([asdict(run) for run in runs], indent=2))
            return 0
        rows = [[run.name, run.status, f"{run.updates:,}", run.best, run.written] for run in runs]
        print(in_columns(["run", "status", "updates", "best validation", "last written"], rows, left=2))
        for problem in (problem for run in runs for problem in run.problems):
            print(problem, file=sys.stderr)
        return 0


@dataclass(frozen=True)
class Report:
    """Write a page about runs: results, curves, learned angles, speed, configurations and environments.

    RUN is a run's folder, or a folder that contains runs.

    Attributes:
        folders: folders of runs.
        out: folder for the page and its pictures.
    """

    needs: ClassVar[tuple[str, ...]] = ("train",)
    folders: list[Path] = field(default_factory=list, metadata={"words": "RUN"})
    out: Path = Path("runs/report")

    def run(self) -> int:
        from lrpe.lab.experiments.runs_on_disk import find_runs
        from lrpe.lab.report.runs import report_runs

        require(
            bool(self.folders),
            "lrpe report needs at least one folder that is or contains a run, such as: lrpe report runs.",
        )
        for folder in self.folders:
            require(folder.is_dir(), f"RUN must be a folder; got {str(folder)!r}.")
        runs = [run for folder in self.folders for run in find_runs(folder)]
        where = ", ".join(repr(str(folder)) for folder in self.folders)
        require(bool(runs), f"No run was found: there is no config.yaml under {where}.")
        print(f"The page: {report_runs(runs, self.out, command()).resolve()}")
        return 0


@dataclass(frozen=True)
class Evaluate:
    """Score the best checkpoint of a run on every split except the training split.

    Attributes:
        folder: folder of the run.
        batches: number of batches per split; all if 0, as in the run's own scoring if not given.
        json: print JSON instead of text.
    """

    needs: ClassVar[tuple[str, ...]] = ("train",)
    folder: list[Path] = field(default_factory=list, metadata={"words": "RUN"})
    batches: Annotated[int, Range(0)] | None = None
    json: bool = False

    def run(self) -> int:
        from lrpe.lab.experiments.experiment import read_experiment
        from lrpe.lab.experiments.run import score
        from lrpe.lab.training.processes import process_group, rank

        folder = one(self.folder, "evaluate", "run")
        experiment = read_experiment(folder)
        if self.batches is not None:
            experiment = replace(experiment, scored=self.batches)
        with process_group(experiment.training.timeout) as device:
            results = score(experiment, folder, device)
            if rank() == 0:
                print(json.dumps(results, indent=2)) if self.json else show(results)
        return 0
