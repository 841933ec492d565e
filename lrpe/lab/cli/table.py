"""``lrpe table`` and ``lrpe demo``: train and print a table of the paper, or a small one in a few minutes."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from lrpe.errors import require
from lrpe.lab.cli.words import one, paths, seeds, words
from lrpe.schema import Range, Seed

if TYPE_CHECKING:
    from lrpe.lab.experiments.cost import Speed
    from lrpe.lab.experiments.planning import Plan

_SPEED_OPTIONS = ("rows", "scale", "runs", "out", "dry_run")  # the options of lrpe table speed

_QUICK = {"small": False, "smoke": True}  # whether the scale measures a tiny model


@dataclass(frozen=True)
class MakeTable:
    """Train every cell of a table that is not trained yet, and print the table.

    TABLE is one of the paper's, lm, glue, imagenet, lra, basis or speed, or one of ours, normalizer, length,
    position or probes. The paper's numbers are printed beside ours if both are from the same data, and below them
    otherwise. The table is also written as text, Markdown, LaTeX, JSON and a page. Running the same command again
    resumes. Any field of the experiment is an option with a dotted name, such as --training.optimization.rate 1e-3.

    Attributes:
        name: name of the table.
        rows: methods, such as base,rope,type2; the paper's if not given.
        columns: columns, such as wikitext103,books; if not given, the columns that --data names, or else the paper's.
        settings: any of fair,absolute,authors; one table is printed per setting.
        seeds: seeds to average over, such as 0,1,2.
        against: rows that every other one is tested against over the seeds, at most four; base,rope if not given.
        scale: paper, medium (40 minutes per cell), small (minutes), demo (a minute) or smoke (seconds).
        data: where the data are, as NAME=PATH,NAME=PATH. PATH may be hub, the Hugging Face hub, or here, the substitute
            that every machine has. DATASET:PATH reads another dataset of the same kind, such as citations:PATH for
            lra-retrieval.
        processes: number of cells to train at the same time; one per processor if 0.
        runs: folder with all runs.
        out: folder for the table; runs/tables/TABLE-SCALE if not given.
        dry_run: train nothing; print every cell's configuration and cost, and departures from the paper.
        tflops: speed for estimated times, in 10^12 operations per second; measured on this machine if not given.
        changes: dotted keys, which apply to every cell.
    """

    needs: ClassVar[tuple[str, ...]] = ("train",)
    name: list[str] = field(default_factory=list, metadata={"words": "TABLE"})
    rows: str = ""
    columns: str = ""
    settings: str = "fair"
    seeds: str = "0"
    against: str = ""
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
        """Refuse a typo before importing torch, which takes seconds."""
        from lrpe.lab.experiments.methods import check_column, check_row, check_table, find_setting
        from lrpe.lab.experiments.scale import find_scale

        check_table(name)
        find_scale(self.scale)
        for check, text in (
            (check_row, self.rows),
            (check_row, self.against),
            (check_column, self.columns),
            (find_setting, self.settings),
        ):
            for word in words(text):
                check(word)
        seeds(self.seeds)
        paths(self.data)

    def train(self, name: str) -> int:
        from lrpe.lab.experiments.run import run_experiments
        from lrpe.lab.report.results import report_table
        from lrpe.lab.training.processes import process_group, rank

        plan = self.plan(name)
        with process_group(max(each.training.timeout for each in plan.experiments)) as device:
            failures = run_experiments(plan.experiments, plan.runs, self.processes or os.cpu_count() or 1, str(device))
            if rank() > 0:
                return 0
        text, page = report_table(plan, self.out or self.runs / "tables" / f"{name}-{self.scale}", command())
        print(text)
        for line in describe_failures(failures):
            print(line)
        print(f"\nThe page: {page.resolve()}")
        return 1 if failures else 0

    def show_plan(self, name: str) -> int:
        from lrpe.lab.experiments.cost import describe_plan

        print(describe_plan(self.plan(name).experiments, self.find_speed()))
        return 0

    def find_speed(self) -> "Speed":
        """Return the speed that --tflops gives, or measure this machine's."""
        from lrpe.lab.experiments.cost import Speed, measure_speed

        if self.tflops is not None:
            return Speed(self.tflops, "from --tflops")
        measured = measure_speed()
        return replace(measured, source=f"{measured.source}; pass --tflops X for another machine's speed")

    def plan(self, name: str) -> "Plan":
        from lrpe.lab.cli.words import read_dotted
        from lrpe.lab.experiments.planning import plan

        return plan(
            name,
            rows=words(self.rows),
            columns=words(self.columns),
            settings=words(self.settings),
            seeds=seeds(self.seeds),
            scale=self.scale,
            data=paths(self.data),
            changes=read_dotted(self.changes),
            runs=self.runs,
            against=words(self.against),
        )

    def measure_speed(self) -> int:
        usual = MakeTable(self.name)
        changed = [field.name for field in fields(self) if getattr(self, field.name) != getattr(usual, field.name)]
        others = [f"--{name}" for name in (*changed, *self.changes) if name not in (*_SPEED_OPTIONS, "changes")]
        require(
            not others,
            f"lrpe table speed measures and does not train, so it does not take {' or '.join(others)}; leave it out.",
        )
        out = self.out or self.runs / "tables" / f"speed-{self.scale}"
        return _make_speed(words(self.rows), self.scale, out, self.dry_run, command())


def _make_speed(rows: Sequence[str], scale: str, out: Path, dry_run: bool, command: str) -> int:
    """Time the training steps of the rows in a separate process, then print and write the table."""
    from lrpe.lab.benchmarks.process import measure_apart
    from lrpe.lab.benchmarks.train import describe_plan, find_rows
    from lrpe.lab.report.benchmark import report_speed

    require(
        scale in _QUICK, f"--scale of lrpe table speed must be small, or smoke for a tiny model; got --scale {scale}."
    )
    options = {"quick": _QUICK[scale], "rows": find_rows(rows)}
    if dry_run:
        print(f"{describe_plan(**options)}\nThe table would be written to {out}.")
        return 0
    text, page = report_speed(*measure_apart("train", **options), out, command)
    print(f"{text}\n\nThe page: {page.resolve()}")
    return 0


def describe_failures(failures: Mapping[str, str]) -> list[str]:
    """Return a line per reason with the cells that failed for it.

    >>> describe_failures({"a-seed0": "out of memory", "b-seed0": "no data", "b-seed1": "no data"})
    ['failed: a-seed0: out of memory', 'failed: b-seed0, b-seed1: no data']
    """
    cells: dict[str, list[str]] = {}
    for cell, reason in failures.items():
        cells.setdefault(reason, []).append(cell)
    return [f"failed: {', '.join(names)}: {reason}" for reason, names in cells.items()]


def command(arguments: Sequence[str] | None = None) -> str:
    import shlex

    return "lrpe " + shlex.join(sys.argv[1:] if arguments is None else arguments)


@dataclass(frozen=True)
class RunDemo:
    """Train the paper's seven methods, recommended and softmax + RoPE on Python's standard library; print the table.

    It takes a few minutes on two cores and also writes a page; finished methods are not trained again. The same as
    lrpe table lm --scale demo with these rows, the paper's first table.

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
        from lrpe.lab.experiments.methods import SEVEN

        return MakeTable(
            name=["lm"],
            rows=",".join((*SEVEN, "recommended", "softmax")),
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
