"""``lrpe report``: runs on a page."""

from dataclasses import dataclass, field
from pathlib import Path

from lrpe.cli.table import command
from lrpe.errors import require


@dataclass(frozen=True)
class Report:
    """Write a page of runs: figures, curves, learned angles, speed, configurations, environments.

    RUN is a run's folder, or a folder with runs in it.

    Attributes:
        folders: the runs.
        out: the folder for the page and its pictures.
    """

    folders: list[str] = field(default_factory=list, metadata={"words": "RUN"})
    out: Path = Path("runs/report")

    def run(self) -> int:
        from lrpe.report.runs import report_runs

        found = [file.parent for folder in self.folders for file in sorted(Path(folder).rglob("config.yaml"))]
        require(bool(found), f"lrpe report takes runs, which have a config.yaml; found none in {self.folders}.")
        print(f"The page: {report_runs(found, self.out, command()).resolve()}")
        return 0
