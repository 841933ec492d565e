"""Read the runs in a folder: their status, progress and validation curves, and their results over seeds."""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median

from lrpe.errors import LrpeError
from lrpe.lab.experiments.experiment import read_experiment
from lrpe.lab.experiments.planning import Plan
from lrpe.lab.experiments.run import read_results
from lrpe.lab.experiments.tables import PrintedColumn
from lrpe.lab.training.record import is_running
from lrpe.lab.training.run_files import MetricsLine, read_metrics, read_run_info


@dataclass(frozen=True)
class Listed:
    """A run in a list.

    Attributes:
        name: the run's folder, relative to the folder of all runs.
        status: running, finished, diverged, interrupted or damaged.
        updates: the number of completed updates.
        best: the metric by which the best checkpoint was chosen, and its value.
        written: the time of the last write.
        problems: descriptions of damaged files.
    """

    name: str
    status: str
    updates: int = 0
    best: str = ""
    written: str = ""
    problems: tuple[str, ...] = ()


def list_runs(runs: Path) -> list[Listed]:
    """List every folder with a config.yaml, sorted by name; a damaged run does not hide the others."""
    return [_list_run(folder, str(folder.relative_to(runs))) for folder in find_runs(runs)]


def _list_run(folder: Path, name: str) -> Listed:
    try:
        read_experiment(folder)
        lines, damaged = read_metrics(folder)
        updates = max((line["update"] for line in lines), default=0)
        return Listed(name, status(folder, lines), updates, best(folder, lines), _last_written(folder), tuple(damaged))
    except LrpeError as error:
        return Listed(name, "damaged", problems=(str(error),))


def status(folder: Path, lines: list[MetricsLine]) -> str:
    """Return "running" if the run holds its lock, else "finished", "diverged" or "interrupted"."""
    if is_running(folder):
        return "running"
    if (folder / "results.json").exists():
        read_results(folder)
        return "finished"
    return "diverged" if lines and "diverged" in lines[-1] else "interrupted"


def _last_written(folder: Path) -> str:
    files = [file for file in (folder / "metrics.jsonl", folder / "config.yaml") if file.exists()]
    return datetime.fromtimestamp(max(file.stat().st_mtime for file in files), UTC).strftime("%Y-%m-%d %H:%M UTC")


def best(folder: Path, lines: list[MetricsLine]) -> str:
    """Return the metric by which the best checkpoint was chosen and its value, or "" if there is none."""
    step = re.fullmatch(r"step-(\d+)", Path(os.path.realpath(folder / "best")).name)
    metric = read_run_info(folder).metric
    name = f"validation {metric}"
    values = [line[name] for line in lines if name in line and step is not None and line["update"] == int(step[1])]
    return f"{metric} {values[0]:.4g}" if values else ""


def curve(folder: Path) -> tuple[str, list[tuple[int, float]]]:
    """Return the metric by which the run is judged, and its validation values as (update, value)."""
    metric = read_run_info(folder).metric
    name = f"validation {metric}"
    points = [(line["update"], line[name]) for line in read_metrics(folder)[0] if name in line]
    return metric, [(update, figure) for update, figure in points if math.isfinite(figure)]


def seconds_per_update(folder: Path) -> float | None:
    """Return the run's median, or None before its first line."""
    times = [line["seconds"] for line in read_metrics(folder)[0] if math.isfinite(line.get("seconds", math.nan))]
    return median(times) if times else None


def find_runs(folder: Path) -> list[Path]:
    """Return the folders under ``folder`` that have a config.yaml, sorted.

    ``os.walk`` skips a folder that vanishes meanwhile or cannot be read; ``Path.rglob`` would raise.
    """
    return sorted(Path(each) for each, _, files in os.walk(folder) if "config.yaml" in files)


Scores = dict[str, dict[int, float]]  # by row and seed


def read_scores(plan: Plan, printed: PrintedColumn, setting: str) -> Scores:
    """Return a printed column's numbers by row, one per seed that has results."""
    scores: Scores = {}
    for row, cell in plan.find_cells(printed, setting).items():
        folders = {experiment.training.seed: plan.runs / experiment.name for experiment in cell.experiments}
        results = {seed: read_results(path) for seed, path in folders.items() if (path / "results.json").exists()}
        values = {seed: printed.read(result, row) for seed, result in results.items()}
        known = {seed: value for seed, value in values.items() if value is not None}
        if known:
            scores[row] = known
    return scores


def averages(columns: Sequence[Scores], rows: Sequence[str], seeds: Sequence[int]) -> Scores:
    """Return the mean over printed columns by row and seed, for the rows that have all of them."""
    whole = [row for row in rows if all(set(seeds) <= scores.get(row, {}).keys() for scores in columns)]
    return {row: {seed: mean(scores[row][seed] for scores in columns) for seed in seeds} for row in whole}


def means(scores: Scores) -> dict[str, float]:
    return {row: mean(values.values()) for row, values in scores.items()}
