"""``lrpe report``: write a page about runs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from lrpe.errors import require
from lrpe.lab.cli.table import command


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
        found = [run for folder in self.folders for run in find_runs(folder)]
        where = ", ".join(repr(str(folder)) for folder in self.folders)
        require(bool(found), f"No run was found: there is no config.yaml under {where}.")
        print(f"The page: {report_runs(found, self.out, command()).resolve()}")
        return 0
