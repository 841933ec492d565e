"""A page of runs: their figures, curves and learned angles, their speed, configurations and environments."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import yaml

from lrpe.errors import LrpeError, require
from lrpe.experiments.experiment import Experiment
from lrpe.experiments.listing import curve, read_metrics
from lrpe.experiments.run import Results
from lrpe.experiments.summary import Scores, deviations, means
from lrpe.experiments.tables import title_of
from lrpe.experiments.written import from_dict
from lrpe.report.curves import curves_spec
from lrpe.report.formats import as_html
from lrpe.report.learned_angles import angles_of, angles_spec
from lrpe.report.page import folded, heading, made_by, paragraph, picture, write_page
from lrpe.report.picture import Spec, as_svg, save_picture
from lrpe.report.table import Column
from lrpe.stamp import describe, stamp


@dataclass(frozen=True)
class Run:
    """What a run's folder says. ``results`` are empty until it has ended."""

    folder: Path
    experiment: Experiment
    environment: dict[str, Any]
    results: Results
    points: list[tuple[int, float]]
    seconds: float | None  # an update, the median

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
    times = [line["seconds"] for line in read_metrics(folder) if "seconds" in line]
    return Run(folder, experiment, environment, results, curve(folder)[1], median(times) if times else None)


def report_runs(folders: Sequence[Path], out: Path, command: str) -> Path:
    """Write a page of these runs, and its pictures as SVG and PNG beside it."""
    runs = [read_run(folder) for folder in folders]
    parts: list[str] = []
    for group in dict.fromkeys(run.group for run in runs):
        parts += describe_group(group, [run for run in runs if run.group == group], out)
    parts += [paragraph(describe(stamp("transformers"))), made_by(command)]
    for run in runs:
        parts.append(folded(f"{run.folder.name}: configuration", (run.folder / "config.yaml").read_text("utf-8")))
        parts.append(folded(f"{run.folder.name}: environment", json.dumps(run.environment, indent=2)))
    return write_page(out / "index.html", "Runs", parts)


def describe_group(group: str, runs: list[Run], out: Path) -> list[str]:
    rows = {run.experiment.method: title_of(run.experiment.method) for run in runs}
    name = group.replace(", ", "-")
    pictures = {
        f"{name}-curves": (curves_of(runs, rows), f"{runs[0].metric} in validation; bands are the seeds' range.")
    }
    for run in runs:
        angles = angles_of(run.folder / "best") if (run.folder / "best").exists() else []
        if angles:
            caption = f"{rows[run.experiment.method]}, seed {run.experiment.training.seed}: angles against their start."
            pictures[f"{name}-{run.folder.name}-angles"] = (angles_spec(angles), caption)
    drawn = []
    for file, (spec, caption) in pictures.items():
        save_picture(spec, out / file)
        drawn.append(picture(as_svg(spec), caption))
    return [heading(group), as_html(rows, columns_of(runs, list(rows)), list(rows)), *drawn]


def columns_of(runs: list[Run], rows: list[str]) -> list[Column]:
    """The metric on every split, then seconds an update and parameters."""
    splits = dict.fromkeys(split for run in runs for split in run.results if run.metric in run.results[split])
    columns = [column(f"{split} {runs[0].metric}", scores(runs, split), runs[0].better) for split in splits]
    speed: Scores = {}
    for run in runs:
        if run.seconds is not None:
            speed.setdefault(run.experiment.method, []).append(run.seconds)
    return [*columns, Column("seconds an update", means(speed), 3, None)]


def scores(runs: list[Run], split: str) -> Scores:
    found: Scores = {}
    for run in runs:
        value = run.results.get(split, {}).get(run.metric)
        if value is not None:
            found.setdefault(run.experiment.method, []).append(value)
    return found


def column(title: str, found: Scores, better: Literal["lower", "higher"]) -> Column:
    return Column(title, means(found), 3, better, deviations(found))


def curves_of(runs: list[Run], titles: dict[str, str]) -> Spec:
    curves: dict[str, list[list[tuple[int, float]]]] = {}
    for run in runs:
        if run.points:
            curves.setdefault(run.experiment.method, []).append(run.points)
    return curves_spec(curves, titles, runs[0].metric, log=runs[0].metric == "perplexity")
