"""``lrpe table``: a table of the paper, trained and printed."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, ClassVar

from lrpe.errors import require
from lrpe.lab.cli.choosing import one, paths, seeds, words
from lrpe.schema import Range

OF_SPEED = ("rows", "scale", "runs", "out", "dry_run")  # what the table of speed is told


@dataclass(frozen=True)
class MakeTable:
    """Train every cell of a table that is not trained yet, and print it.

    TABLE is lm, glue, imagenet, lra, basis or speed, which are the paper's, or normalizer or length, which are ours.
    The paper's numbers stand beside ours where both are of the same data, and below them where they are not. The table
    is written as text, Markdown, LaTeX, JSON and a page as well. The same command again resumes.

    Attributes:
        name: which table.
        rows: methods, as base,rope,type2; the paper's if not given.
        columns: as wikitext103,books; those that --data names if not given, else the paper's.
        settings: fair, absolute, authors; a table for each.
        seeds: as 0,1,2.
        scale: paper, small (minutes a cell), demo (a minute) or smoke (seconds).
        data: where the data are, as NAME=PATH,NAME=PATH; a PATH of hub is the Hugging Face hub, and one of here is what
            every machine has in its place.
        processes: cells that train at a time; one for each processor if 0.
        runs: the folder with all runs.
        out: the folder for the table; runs/tables/TABLE-SCALE if not given.
        dry_run: train nothing; show every cell's configuration, cost and departures from the paper.
        tflops: the speed, in 10^12 operations per second, that times are estimated at; measured here if not given.
        changes: keys with dots, of every cell.
    """

    needs: ClassVar[tuple[str, ...]] = ("train",)
    name: list[str] = field(default_factory=list, metadata={"words": "TABLE"})
    rows: str = ""
    columns: str = ""
    settings: str = "fair"
    seeds: str = "0"
    scale: str = "small"
    data: str = ""
    processes: Annotated[int, Range(0, 1024)] = 1
    runs: Path = Path("runs")
    out: Path | None = None
    dry_run: bool = False
    tflops: Annotated[float, Range(1e-6, 1e9)] | None = None
    changes: dict[str, str] = field(default_factory=dict, metadata={"dotted": True})

    def run(self) -> int:
        name = one(self.name, "table", "table")
        self.check_names(name)
        if name == "speed":
            return self.measure_speed()
        return self.show_plan(name) if self.dry_run else self.train(name)

    def check_names(self, name: str) -> None:
        """Refuse a typo before the seconds that it takes to import what the names stand for."""
        from lrpe.lab.experiments import known

        known.check_table(name)
        known.check_scale(self.scale)
        for check, text in (
            (known.check_row, self.rows),
            (known.check_column, self.columns),
            (known.check_setting, self.settings),
        ):
            for word in words(text):
                check(word)
        seeds(self.seeds)
        paths(self.data)

    def train(self, name: str) -> int:
        from lrpe.lab.experiments.cells import run_cells
        from lrpe.lab.report.results import report_table
        from lrpe.lab.training.processes import joined, rank

        chosen = self.chosen(name)
        cells = chosen.cells()
        with joined(max(cell.training.timeout for cell in cells)) as device:
            failures = run_cells(cells, self.runs, self.processes or os.cpu_count() or 1, str(device))
            if rank() > 0:
                return 0
        text, page = report_table(chosen, self.out or self.runs / "tables" / f"{name}-{self.scale}", command())
        print(text)
        for cell, reason in failures.items():
            print(f"failed: {cell}: {reason}")
        print(f"\nThe page: {page.resolve()}")
        return 1 if failures else 0

    def show_plan(self, name: str) -> int:
        from lrpe.lab.experiments.dry_run import describe_plan
        from lrpe.lab.experiments.speed import given_speed, measure_speed

        cells = self.chosen(name).cells()
        print(describe_plan(cells, measure_speed() if self.tflops is None else given_speed(self.tflops)))
        return 0

    def chosen(self, name: str):
        from lrpe.lab.experiments.at_hand import settle
        from lrpe.lab.experiments.known import COLUMNS
        from lrpe.lab.experiments.summary import Chosen
        from lrpe.lab.experiments.tables import title_of

        named = [column for column in paths(self.data) if column in COLUMNS]
        table = settle(name, words(self.columns) or named, self.prepare)
        rows = tuple(words(self.rows)) or table.rows
        for row in rows:
            title_of(row)
        return Chosen(table, rows, words(self.settings), seeds(self.seeds), self.prepare, self.runs)

    def prepare(self, experiment):
        from lrpe.lab.experiments.scale import find_scale
        from lrpe.lab.experiments.written import changed, nested

        sized = find_scale(self.scale)(experiment).with_data(paths(self.data))
        return changed(sized, *(nested(key, value) for key, value in self.changes.items())) if self.changes else sized

    def measure_speed(self) -> int:
        from lrpe.lab.cli.speed import make_speed

        usual = MakeTable(self.name)
        given = [field.name for field in fields(self) if getattr(self, field.name) != getattr(usual, field.name)]
        others = [f"--{name}" for name in (*given, *self.changes) if name not in (*OF_SPEED, "changes")]
        require(not others, f"lrpe table speed is measured, not trained, and takes no {' and no '.join(others)}.")
        out = self.out or self.runs / "tables" / f"speed-{self.scale}"
        return make_speed(words(self.rows), self.scale, out, self.dry_run, command())


def command(arguments: Sequence[str] | None = None) -> str:
    import shlex

    return "lrpe " + shlex.join(sys.argv[1:] if arguments is None else arguments)
