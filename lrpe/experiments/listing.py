"""What the folders of runs say: which there are, how each stands, and its course."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from lrpe.experiments.run_folders import find_runs
from lrpe.training.metrics import read_metrics

FRESH = 300  # seconds since the last line, within which a run is taken to be under way


def list_runs(runs: Path) -> list[dict[str, Any]]:
    """Every folder with a config.yaml, in the order of their names."""
    return [describe_run(folder, runs) for folder in find_runs(runs)]


def describe_run(folder: Path, runs: Path) -> dict[str, Any]:
    lines = read_metrics(folder)[0]
    written = max(file.stat().st_mtime for file in (folder / "metrics.jsonl", folder / "config.yaml") if file.exists())
    return {
        "name": str(folder.relative_to(runs)),
        "status": status(folder, written),
        "updates": f"{updates_done(folder):,}",
        "best": best(folder, lines),
        "written": datetime.fromtimestamp(written, UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def status(folder: Path, written: float) -> str:
    if (folder / "results.json").exists():
        return "done"
    return "training" if time.time() - written < FRESH else "stopped"


def best(folder: Path, lines: list[dict[str, Any]]) -> str:
    """The figure that the best checkpoint was chosen by, with its name."""
    update = (folder / "best").resolve().name.removeprefix("step-").lstrip("0")
    metric = primary(folder)
    found = [line for line in lines if f"validation {metric}" in line and str(line["update"]) == update]
    return f"{metric} {found[0][f'validation {metric}']:.4g}" if found else ""


def updates_done(folder: Path) -> int:
    return max((line["update"] for line in read_metrics(folder)[0]), default=0)


def curve(folder: Path) -> tuple[str, list[tuple[int, float]]]:
    """The metric that the run is judged by, and its course in validation: (update, figure)."""
    metric = primary(folder)
    name = f"validation {metric}"
    return metric, [(line["update"], line[name]) for line in read_metrics(folder)[0] if name in line]


def seconds_an_update(folder: Path) -> float | None:
    """The median of the run, or None before its first line."""
    times = [line["seconds"] for line in read_metrics(folder)[0] if "seconds" in line]
    return median(times) if times else None


def primary(folder: Path) -> str:
    """The metric that a run is judged by."""
    file = folder / "environment.json"
    return json.loads(file.read_text(encoding="utf-8")).get("metric", "") if file.exists() else ""
