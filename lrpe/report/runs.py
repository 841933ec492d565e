"""A page of runs: their figures, curves and learned angles, their speed, configurations and environments."""

import json
from collections.abc import Callable, Iterator, Sequence
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
from lrpe.report.data_used import data_used, label
from lrpe.report.formats import as_html
from lrpe.report.html import bullets, folded, heading, paragraph, preformatted, section
from lrpe.report.learned_angles import angles_picture
from lrpe.report.page import beside, picture, pictures, provenance, write_page
from lrpe.report.picture import file_name
from lrpe.report.table import Column
from lrpe.stamp import stamp

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
        """The title of the table and the picture that the run is in, with others on the same data."""
        parts = (label(self.experiment), self.experiment.scale, self.experiment.setting, self.experiment.variant)
        return ", ".join(filter(None, parts))

    @property
    def title(self) -> str:
        return f"{titled(self.row)}, seed {self.experiment.training.seed}"


def read_run(folder: Path) -> Run:
    config = folder / "config.yaml"
    require(config.is_file(), f"A run has a config.yaml; {str(folder)!r} has none.")
    try:
        experiment = from_dict(yaml.safe_load(config.read_text(encoding="utf-8")))
        environment, results = (_read_if_there(folder / name) for name in ("environment.json", "results.json"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise LrpeError(f"The run {str(folder)!r} cannot be read: {error}") from error
    return Run(folder, experiment, environment, results, curve(folder)[1], seconds_an_update(folder))


def _read_if_there(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


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
    groups = dict.fromkeys(run.group for run in runs)
    parts = [section(group, describe_group([run for run in runs if run.group == group], out)) for group in groups]
    return write_page(out / "index.html", "Runs", [*parts, provenance(stamp("transformers"), command)])


def describe_group(runs: list[Run], out: Path) -> list[str]:
    """Return the parts of a group's section: data, figures, curves, learned angles, and the runs' files."""
    rows = {run.row: titled(run.row) for run in runs}
    angles = [angles_picture(run.folder, out / file_name(run.group, run.title, "angles"), run.title) for run in runs]
    unfinished = [progress(run) for run in runs if not run.results]
    table = as_html(rows, columns_of(runs), list(rows)) + (bullets(unfinished) if unfinished else "")
    return [
        *map(paragraph, data_used(run.experiment for run in runs).values()),
        beside(table, pictures([draw_curves(runs, rows, out / file_name(runs[0].group, "curves"))])),
        heading("Learned angles", 3) if any(angles) else "",
        pictures(angles, small=True),
        folded("Configurations and environments", *(part for run in runs for part in files_of(run))),
    ]


def progress(run: Run) -> str:
    """Say how far a run without results has come."""
    if not run.points:
        return f"{run.title}: no validation yet."
    update, figure = run.points[-1]
    return f"{run.title}: not finished; validation {run.metric} {figure:.4g} at update {update:,}."


def files_of(run: Run) -> Iterator[str]:
    config, environment = run.folder / "config.yaml", json.dumps(run.environment, indent=2, ensure_ascii=False)
    yield folded(f"{run.title}: configuration", preformatted(config.read_text("utf-8")))
    yield folded(f"{run.title}: environment", preformatted(environment))


def columns_of(runs: list[Run]) -> list[Column]:
    """Return a column for the metric on every split, and one for the seconds per update."""
    metric, better = judged_by(runs)
    splits = dict.fromkeys(split for run in runs for split in run.results if metric in run.results[split])
    columns = []
    for split in splits:
        found = by_row(runs, lambda run, split=split: run.results.get(split, {}).get(metric))
        columns.append(Column(f"{split} {metric}", means(found), 3, better, deviations(found)))
    return [*columns, Column("seconds per update", means(by_row(runs, lambda run: run.seconds)), 3, None)]


def judged_by(runs: list[Run]) -> tuple[str, Literal["lower", "higher"]]:
    """Return the metric of a group and which way it is better; a run that only just began may not know yet."""
    known = [run for run in runs if run.metric] or runs
    return known[0].metric, known[0].better


def by_row(runs: list[Run], read: Callable[[Run], T | None]) -> dict[str, list[T]]:
    """What is read of the runs of each row, but for those that have nothing to read."""
    found: dict[str, list[T]] = {}
    for run in runs:
        value = read(run)
        if value is not None:
            found.setdefault(run.row, []).append(value)
    return found


def draw_curves(runs: list[Run], titles: dict[str, str], file: Path) -> str:
    """Return the validation curves as a figure; nothing before the first validation."""
    curves, (metric, _) = by_row(runs, lambda run: run.points or None), judged_by(runs)
    if not curves:
        return ""
    bands = "; bands are the seeds' range" if len({run.experiment.training.seed for run in runs}) > 1 else ""
    spec = curves_spec(curves, titles, metric, log=metric == "perplexity")
    return picture(spec, file, f"{metric.capitalize()} in validation{bands}.")
