"""Run one experiment in one folder: train or resume it, then score it on every split, once."""

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lrpe.atomic import atomic_folder, write_atomically
from lrpe.encodings.angles import SCALINGS
from lrpe.errors import LrpeError, require
from lrpe.lab.experiments.build import build_model, build_task, lengthen, load_checkpoint_weights
from lrpe.lab.experiments.config_file import to_dict, upgrade
from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.methods import find_method
from lrpe.lab.experiments.run_plugins import keep_plugins, report_changed_plugins
from lrpe.lab.tasks.task import Task, evaluate
from lrpe.lab.training.loop import train
from lrpe.lab.training.processes import rank, run_on_first, world_size
from lrpe.lab.training.record import check_config
from lrpe.lab.training.run_files import RunInfo, naming_failure
from lrpe.models.saved import load_model
from lrpe.serialization import read_json, to_json

Results = dict[str, dict[str, float]]  # metrics by split


def run(experiment: Experiment, runs: Path, device: torch.device | str = "cpu") -> Results:
    """Finish an experiment in its folder, ``runs`` / its name, and return its results, saved as results.json."""
    return run_in(runs / experiment.name, experiment, runs, device)


def run_in(folder: Path, experiment: Experiment, runs: Path, device: torch.device | str = "cpu") -> Results:
    """Finish an experiment in this folder; the experiment that it starts from is under ``runs``."""
    start = None if experiment.checkpoint is not None else _train_start(experiment, runs, device)
    task = build_task(experiment)
    model = build_model(experiment, task, start).to(device)
    if experiment.checkpoint is not None and not (folder / "last").exists():
        load_checkpoint_weights(experiment.checkpoint, model)
    run_on_first(lambda: _save_tokenizer(task, folder / "tokenizer"))
    if not (folder / "results.json").exists():
        run_on_first(lambda: keep_plugins(folder, experiment))
    config = to_dict(experiment)
    train(task, model, experiment.training, folder, config, title(experiment), about(task), upgrade)
    if not is_finished(folder, experiment):
        parameters = sum(parameter.numel() for parameter in model.parameters())
        results = {"model": {"parameters": parameters}} | score(experiment, folder, device, task)
        run_on_first(lambda: _write_results(folder, results))
    return read_results(folder)


def _train_start(experiment: Experiment, runs: Path, device: torch.device | str) -> Path | None:
    """Return the best checkpoint of the experiment that this one starts from, training it if needed."""
    if experiment.start is None:
        return None
    folder = runs / experiment.start.name
    if not is_finished(folder, experiment.start):
        run(experiment.start, runs, device)
    return folder / "best"


def is_finished(folder: Path, experiment: Experiment) -> bool:
    """Return whether the folder has this experiment's results; raise LrpeError if its configuration is another.

    If the results cannot be read, the run is scored again.
    """
    if not (folder / "results.json").exists():
        return False
    check_config(folder, to_dict(experiment), upgrade)
    report_changed_plugins(folder, experiment)
    try:
        read_results(folder)
    except LrpeError as error:
        print(f"{error} Scoring the run again.", file=sys.stderr)
        return False
    return True


def score(experiment: Experiment, folder: Path, device: torch.device | str, task: Task | None = None) -> Results:
    """Return the best checkpoint's metrics on every split except training, and at the experiment's lengths."""
    best = folder / "best"
    require(
        best.exists(),
        f"A run is scored by its best checkpoint, which {str(folder)!r} does not have yet. Train it first.",
    )
    task = task or build_task(experiment)
    model = load_model(best).to(device)
    splits = [name for name in task.dataset.splits if name != "train"]
    results = {split: score_split(experiment, task, model, split, device) for split in splits}
    for times in experiment.lengths:
        longer = lengthen(experiment, times)
        results |= _score_lengths(longer, build_task(longer), best, times, device)
    return results


def score_split(experiment: Experiment, task: Task, model: Any, split: str, device: Any) -> dict[str, float]:
    training = experiment.training
    whole = training.evaluation_batch or training.optimization.batch
    size = training.evaluation_batch or training.micro_batch or whole  # what fits in the memory of a process
    shares = {"rank": rank(), "world": world_size(), "workers": training.workers, "limit": experiment.scored * whole}
    return evaluate(task, model, task.batches(split, size, training=False, **shares).epoch(0), str(device))


def _score_lengths(experiment: Experiment, task: Task, best: Path, times: int, device: Any) -> Results:
    """Return validation metrics at ``times`` the trained length, with each scaling of α if the encoding has α."""
    fewer = replace(experiment, training=replace(experiment.training, evaluation_batch=max(1, 32 // times)))
    results = {}
    for kind, changes in _scalings(load_model(best).config, times):
        model = load_model(best, **changes).to(device)
        results[f"×{times}{kind}"] = score_split(fewer, task, model, "validation", device)
    return results


def _scalings(config: Any, times: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the encoding unchanged, then with each scaling of its angles."""
    yield "", {}
    first = config.layer_encoding(0)
    if first.matrix not in ("unitary", "orthogonal") or first.rotated == 0 or first.angles != "geometric" or times == 1:
        return
    for kind in SCALINGS:
        scaling = {"kind": kind, "factor": times} | (
            {"length": config.max_position_embeddings} if kind == "yarn" else {}
        )
        yield f", {kind}", {"encoding": _with_scaling(config.encoding, scaling)}


def _with_scaling(encoding: str | dict[str, Any], scaling: dict[str, Any]) -> dict[str, Any]:
    return ({"name": encoding} if isinstance(encoding, str) else encoding) | {"scaling": scaling}


def title(experiment: Experiment) -> str:
    return f"{experiment.column}, {find_method(experiment.method).title}, seed {experiment.training.seed}"


def about(task: Task) -> RunInfo:
    """Return what environment.json records besides the machine: the data with hashes, and the metric."""
    return RunInfo({"name": task.dataset.name, **task.dataset.facts}, task.metric, task.better)


def _save_tokenizer(task: Task, folder: Path) -> None:
    """Save the tokeniser beside the run, for generation and export."""
    tokenizer = getattr(task, "tokenizer", None) or getattr(task.dataset, "tokenizer", None)
    if tokenizer is not None and not folder.exists():
        with naming_failure(folder), atomic_folder(folder) as temporary:
            tokenizer.save(temporary)


def _write_results(folder: Path, results: Mapping[str, Any]) -> None:
    write_atomically(folder / "results.json", to_json(results))


def read_results(folder: Path) -> Results:
    """Return the metrics of a finished run; null is read as NaN."""
    file = folder / "results.json"
    require(file.exists(), f"{str(folder)!r} has no results yet. Finish its training first.")
    written = read_json(file, dict[str, dict[str, float | None]])
    return {
        split: {name: math.nan if figure is None else figure for name, figure in metrics.items()}
        for split, metrics in written.items()
    }
