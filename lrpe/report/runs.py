"""A page of runs: their figures, curves and learned angles, their speed, configurations and environments."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from lrpe.errors import LrpeError, require
from lrpe.experiments.experiment import Experiment
from lrpe.experiments.listing import curve, seconds_an_update
from lrpe.experiments.run import Results
from lrpe.experiments.summary import deviations, means
from lrpe.experiments.tables import title_of
from lrpe.experiments.written import from_dict, to_dict
from lrpe.report.curves import curves_spec
from lrpe.report.formats import as_html
from lrpe.report.learned_angles import angles_picture
from lrpe.report.page import folded, heading, made_by, paragraph, picture, write_page
from lrpe.report.picture import Spec
from lrpe.report.table import Column
from lrpe.stamp import describe, stamp

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """What a run's folder says. ``results`` are empty until it has ended."""

    folder: Path
    experiment: Experiment
    environment: dict[str, Any]
    results: Results
    points: list[tuple[int, float]]
    seconds: float | None  # an update, the median
    row: str = ""  # runs of one row differ in their seed alone

    @property
    def metric(self) -> str:
        return self.environment.get("metric", "")

    @property
    def better(self) -> Literal["lower", "higher"]:
        return self.environment.get("better", "lower")

    @property
    def group(self) -> str:
        """Runs of one group stand in one table and one picture."""
        parts = (self.experiment.column, self.experiment.scale, self.experiment.setting, self.experiment.variant)
        return ", ".join(filter(None, parts))


def read_run(folder: Path) -> Run:
    config = folder / "config.yaml"
    require(config.is_file(), f"A run has a config.yaml; {str(folder)!r} has none.")
    try:
        experiment = from_dict(yaml.safe_load(config.read_text(encoding="utf-8")))
        environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
        done = folder / "results.json"
        results = json.loads(done.read_text(encoding="utf-8")) if done.exists() else {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise LrpeError(f"The run {str(folder)!r} cannot be read: {error}") from error
    return Run(folder, experiment, environment, results, curve(folder)[1], seconds_an_update(folder))


def in_rows(runs: list[Run]) -> list[Run]:
    """With the row that each is of: its method, and a number where a run of it before has another configuration."""
    rows: dict[str, list[dict[str, Any]]] = {}
    found = []
    for run in runs:
        method = f"{run.group}: {run.experiment.method}"
        kinds = rows.setdefault(method, [])
        kind = to_dict(run.experiment.with_seed(0))
        if kind not in kinds:
            kinds.append(kind)
        number = kinds.index(kind)
        found.append(replace(run, row=f"{run.experiment.method}+{number + 1}" if number else run.experiment.method))
    return found


def titled(row: str) -> str:
    method, _, number = row.partition("+")
    return title_of(method) + (f", configuration {number}" if number else "")


def report_runs(folders: Sequence[Path], out: Path, command: str) -> Path:
    """Write a page of these runs, and its pictures as SVG and PNG beside it."""
    runs = in_rows([read_run(folder) for folder in folders])
    parts: list[str] = []
    for group in dict.fromkeys(run.group for run in runs):
        parts += describe_group(group, [run for run in runs if run.group == group], out)
    parts += [paragraph(describe(stamp("transformers"))), made_by(command)]
    for run in runs:
        parts.append(folded(f"{run.folder.name}: configuration", (run.folder / "config.yaml").read_text("utf-8")))
        parts.append(folded(f"{run.folder.name}: environment", json.dumps(run.environment, indent=2)))
    return write_page(out / "index.html", "Runs", parts)


def describe_group(group: str, runs: list[Run], out: Path) -> list[str]:
    rows = {run.row: titled(run.row) for run in runs}
    file = out / group.replace(", ", "-")
    bands = "; bands are the seeds' range" if len({run.experiment.training.seed for run in runs}) > 1 else ""
    caption = f"{runs[0].metric} in validation{bands}."
    drawn = [picture(curves_of(runs, rows), file.with_name(f"{file.name}-curves"), caption)]
    for run in runs:
        title = f"{rows[run.row]}, seed {run.experiment.training.seed}"
        name = f"{file.name}-{run.row.replace('*', '-times-')}-seed{run.experiment.training.seed}-angles"
        drawn.append(angles_picture(run.folder, file.with_name(name), title))
    return [heading(group), as_html(rows, columns_of(runs), list(rows)), *drawn]


def columns_of(runs: list[Run]) -> list[Column]:
    """The metric on every split, then seconds an update."""
    metric, better = runs[0].metric, runs[0].better
    splits = dict.fromkeys(split for run in runs for split in run.results if metric in run.results[split])
    columns = []
    for split in splits:
        found = by_row(runs, lambda run, split=split: run.results.get(split, {}).get(metric))
        columns.append(Column(f"{split} {metric}", means(found), 3, better, deviations(found)))
    return [*columns, Column("seconds an update", means(by_row(runs, lambda run: run.seconds)), 3, None)]


def by_row(runs: list[Run], read: Callable[[Run], T | None]) -> dict[str, list[T]]:
    """What is read of the runs of each row, but for those that have nothing to read."""
    found: dict[str, list[T]] = {}
    for run in runs:
        value = read(run)
        if value is not None:
            found.setdefault(run.row, []).append(value)
    return found


def curves_of(runs: list[Run], titles: dict[str, str]) -> Spec:
    curves = by_row(runs, lambda run: run.points or None)
    return curves_spec(curves, titles, runs[0].metric, log=runs[0].metric == "perplexity")
