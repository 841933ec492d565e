"""``lrpe report``: runs on a page."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from lrpe.errors import require
from lrpe.lab.cli.table import command


@dataclass(frozen=True)
class Report:
    """Write a page of runs: figures, curves, learned angles, speed, configurations, environments.

    RUN is a run's folder, or a folder with runs in it.

    Attributes:
        folders: the runs.
        out: the folder for the page and its pictures.
    """

    needs: ClassVar[tuple[str, ...]] = ("train",)
    folders: list[Path] = field(default_factory=list, metadata={"words": "RUN"})
    out: Path = Path("runs/report")

    def run(self) -> int:
        from lrpe.lab.experiments.listing import find_runs
        from lrpe.lab.report.runs import report_runs

        require(bool(self.folders), "lrpe report takes runs, or folders with runs in them; got none: lrpe report runs.")
        for folder in self.folders:
            require(folder.is_dir(), f"A run is a folder; {str(folder)!r} is none.")
        found = [run for folder in self.folders for run in find_runs(folder)]
        where = ", ".join(repr(str(folder)) for folder in self.folders)
        require(bool(found), f"A run has a config.yaml; there is none under {where}.")
        print(f"The page: {report_runs(found, self.out, command()).resolve()}")
        return 0
