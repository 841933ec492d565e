"""The report of runs: a page with their figures, curves, learned angles, speed, configurations and environments."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from lrpe.errors import LrpeError, require
from lrpe.lab.experiments.experiment import Experiment, read_experiment, to_dict
from lrpe.lab.experiments.methods import REFERENCES
from lrpe.lab.experiments.run import Results, read_results
from lrpe.lab.experiments.runs_on_disk import curve, means, seconds_per_update
from lrpe.lab.experiments.tables import title_of
from lrpe.lab.report.notes import data_used, label, summarize
from lrpe.lab.report.page import (
    beside,
    bullets,
    folded,
    paragraph,
    pictures,
    preformatted,
    provenance,
    section,
    write_page,
)
from lrpe.lab.report.page_table import as_html
from lrpe.lab.report.paired_test import compare_rows
from lrpe.lab.report.picture import file_name
from lrpe.lab.report.table import FigureColumn
from lrpe.lab.report.training import angles_picture, show_chart
from lrpe.lab.stamp import stamp
from lrpe.lab.training.run_files import RunInfo, read_metrics, read_run_info
from lrpe.serialization import read_text

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """The contents of a run's folder; ``results`` are empty until it has finished."""

    folder: Path
    experiment: Experiment
    about: RunInfo
    config: str  # the text of config.yaml
    environment: str  # the text of environment.json
    results: Results
    points: list[tuple[int, float]]
    seconds: float | None  # per update, the median
    row: str = ""  # runs of one row differ only in their seed

    @property
    def metric(self) -> str:
        return self.about.metric

    @property
    def group(self) -> str:
        """The title of the section that shows the run, with others on the same data."""
        parts = (label(self.experiment), self.experiment.scale, self.experiment.setting, self.experiment.variant)
        return ", ".join(filter(None, parts))

    @property
    def title(self) -> str:
        return f"{_row_title(self.row)}, seed {self.experiment.training.seed}"


def read_run(folder: Path) -> Run:
    """Read a run's folder.

    Raises:
        LrpeError: a file in it is missing or damaged.
    """
    done, environment = folder / "results.json", folder / "environment.json"
    return Run(
        folder,
        read_experiment(folder),
        read_run_info(folder),
        read_text(folder / "config.yaml"),
        read_text(environment) if environment.exists() else "",
        read_results(folder) if done.exists() else {},
        curve(folder)[1],
        seconds_per_update(folder),
    )


def _read_runs(folders: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """Return the readable runs, and a sentence per run or line of metrics that cannot be read."""
    runs, problems = [], []
    for folder in folders:
        try:
            runs.append(read_run(folder))
            problems += read_metrics(folder)[1]
        except LrpeError as error:
            problems.append(f"The run {str(folder)!r} is left out: {error}")
    return runs, problems


def _assign_rows(runs: list[Run]) -> list[Run]:
    """Set the row of each run: its method, numbered where runs of the method have several configurations."""
    rows: dict[str, list[dict[str, Any]]] = {}
    numbered = []
    for run in runs:
        method = f"{run.group}: {run.experiment.method}"
        kinds = rows.setdefault(method, [])
        kind = to_dict(run.experiment.with_seed(0))
        if kind not in kinds:
            kinds.append(kind)
        number = kinds.index(kind)
        numbered.append(replace(run, row=f"{run.experiment.method}+{number + 1}" if number else run.experiment.method))
    return numbered


def _row_title(row: str) -> str:
    method, _, number = row.partition("+")
    return title_of(method) + (f", configuration {number}" if number else "")


def report_runs(folders: Sequence[Path], out: Path, command: str) -> Path:
    """Write a page of these runs, with its pictures as SVG and PNG; damaged runs are named and left out."""
    readable, problems = _read_runs(folders)
    require(bool(readable), "\n".join(problems))
    runs = _assign_rows(readable)
    groups = {name: [run for run in runs if run.group == name] for name in dict.fromkeys(run.group for run in runs)}
    summary = section("Summary", [bullets(map(_summarize, groups.values()))])
    parts = [section(name, _describe_group(group, out, problems)) for name, group in groups.items()]
    for problem in problems:
        print(problem, file=sys.stderr)
    parts += [section("Damaged", [bullets(problems)])] if problems else []
    made = provenance(stamp("transformers"), command)
    return write_page(out / "index.html", "Runs", [summary, *parts, made])


def _summarize(runs: list[Run]) -> str:
    """Return what a group shows: how many runs it has, and which row is best where several have finished."""
    rows, columns = {run.row: _row_title(run.row) for run in runs}, _columns_of(runs)
    finished = sum(bool(run.results) for run in runs)
    about = f"{runs[0].group}: {finished} of {len(runs)} run{'s' if len(runs) > 1 else ''} finished."
    return " ".join([about, *summarize(rows, columns[0], list(rows))])


def _describe_group(runs: list[Run], out: Path, problems: list[str]) -> list[str]:
    """Return the parts of a group's section: data, figures, curves, learned angles, and the runs' files."""
    rows = {run.row: _row_title(run.row) for run in runs}
    angles = [_draw_angles(run, out, problems) for run in runs]
    unfinished = [progress(run) for run in runs if not run.results]
    table = as_html(rows, _columns_of(runs), list(rows)) + (bullets(unfinished) if unfinished else "")
    return [
        *map(paragraph, data_used(run.experiment for run in runs).values()),
        beside(table, pictures([_draw_curves(runs, rows, out / file_name(runs[0].group, "curves"))])),
        folded("Learned angles", pictures(angles, small=True)) if any(angles) else "",
        folded("Configurations and environments", *(part for run in runs for part in _files_of(run))),
    ]


def _draw_angles(run: Run, out: Path, problems: list[str]) -> str:
    """Return the run's learned angles as HTML; a model that cannot be read is added to ``problems``."""
    try:
        return angles_picture(run.folder, out / file_name(run.group, run.title, "angles"), run.title)
    except LrpeError as error:
        problems.append(f"{run.folder}: its best model cannot be read: {error}")
        return ""


def progress(run: Run) -> str:
    """Describe the progress of an unfinished run."""
    if not run.points:
        return f"{run.title}: no validation yet."
    update, figure = run.points[-1]
    return f"{run.title}: not finished; validation {run.metric} {figure:.4g} at update {update:,}."


def _files_of(run: Run) -> Iterator[str]:
    yield folded(f"{run.title}: configuration", preformatted(run.config))
    yield folded(f"{run.title}: environment", preformatted(run.environment))


def _columns_of(runs: list[Run]) -> list[FigureColumn]:
    """Return a column per split for the metric, and one for the seconds per update."""
    metric, better = _judged_by(runs)
    splits = dict.fromkeys(split for run in runs for split in run.results if metric in run.results[split])
    columns = []
    for split in splits:
        scores = _by_row(runs, lambda run, split=split: run.results.get(split, {}).get(metric))
        columns.append(
            FigureColumn(f"{split} {metric}", means(scores), 3, better, scores, tests=compare_rows(scores, REFERENCES))
        )
    return [*columns, FigureColumn("seconds per update", means(_by_row(runs, lambda run: run.seconds)), 3, None)]


def _judged_by(runs: list[Run]) -> tuple[str, Literal["lower", "higher"]]:
    """Return the metric of a group and its better direction; a run that has just started may not have one yet."""
    known = [run for run in runs if run.metric] or runs
    return known[0].metric, known[0].about.better


def _by_row(runs: list[Run], read: Callable[[Run], T | None]) -> dict[str, dict[int, T]]:
    """Return the values read from the runs by row and seed, leaving out None; copies of a run count once."""
    values: dict[str, dict[int, T]] = {}
    for run in runs:
        value = read(run)
        if value is not None:
            values.setdefault(run.row, {})[run.experiment.training.seed] = value
    return values


def _draw_curves(runs: list[Run], titles: dict[str, str], file: Path) -> str:
    """Return the validation curves as HTML; empty before the first validation."""
    by_seed, (metric, _) = _by_row(runs, lambda run: run.points or None), _judged_by(runs)
    curves = {row: list(seeds.values()) for row, seeds in by_seed.items()}
    if not curves:
        return ""
    bands = "; bands show the range over seeds" if len({run.experiment.training.seed for run in runs}) > 1 else ""
    return show_chart(curves, titles, metric, file, f"Validation {metric}{bands}.")
