"""Run experiments, each once in its folder: train or resume it, then score it on every split."""

import math
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from lrpe.atomic import atomic_folder, write_atomically
from lrpe.encodings.angles import SCALINGS
from lrpe.errors import LrpeError, StoppedError, require
from lrpe.lab.experiments.build import build_model, build_task, lengthen, load_checkpoint_weights
from lrpe.lab.experiments.experiment import Experiment, to_dict, upgrade
from lrpe.lab.experiments.methods import find_method
from lrpe.lab.experiments.pool import run_apart
from lrpe.lab.tasks.language_modelling import octave_name
from lrpe.lab.tasks.task import Task, evaluate
from lrpe.lab.training.loop import train
from lrpe.lab.training.processes import rank, run_on_first, world_size
from lrpe.lab.training.record import check_config
from lrpe.lab.training.run_files import RunInfo, naming_failure, read_last_update
from lrpe.models.saved import load_model
from lrpe.plugins import Plugin, find_plugins
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

    If the results cannot be read, or lack what this version also measures, the run is scored again.
    """
    if not (folder / "results.json").exists():
        return False
    check_config(folder, to_dict(experiment), upgrade)
    report_changed_plugins(folder, experiment)
    try:
        results = read_results(folder)
    except LrpeError as error:
        print(f"{error} Scoring the run again.", file=sys.stderr)
        return False
    if all(octave_name(0) in results.get(f"×{times}", {}) for times in experiment.lengths):
        return True
    print(f"{str(folder)!r} has no perplexity by position yet. Scoring the run again.", file=sys.stderr)
    return False


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


_FOLDER = "plugins"


def keep_plugins(folder: Path, experiment: Experiment) -> None:
    """Write the plug-ins that an experiment uses beside a new run, and check that a resumed run has the same.

    Raises:
        LrpeError: the run began with another version of a plug-in.
    """
    used = find_plugins(to_dict(experiment))
    for plugin in used if (folder / "config.yaml").exists() else ():
        copy = folder / _FOLDER / plugin.file_name
        require(
            _is_same(copy, plugin),
            f"The plug-in {plugin.file!r} is not the one that {str(folder)!r} began with. To resume, pass --plugin "
            f"{copy}; to use the new one, train in another folder: --out DIR or --runs DIR.",
        )
    if used and not (folder / _FOLDER).exists():
        with naming_failure(folder), atomic_folder(folder / _FOLDER) as temporary:
            for plugin in used:
                (temporary / plugin.file_name).write_text(plugin.source, encoding="utf-8")


def report_changed_plugins(folder: Path, experiment: Experiment) -> None:
    """Print which plug-ins of a finished run have changed since, because its results are not trained again."""
    for plugin in find_plugins(to_dict(experiment)):
        if not _is_same(folder / _FOLDER / plugin.file_name, plugin):
            print(f"{folder} was trained with another version of the plug-in {plugin.file}.", file=sys.stderr)


def _is_same(copy: Path, plugin: Plugin) -> bool:
    try:
        return copy.is_file() and copy.read_text(encoding="utf-8") == plugin.source
    except (OSError, UnicodeDecodeError) as error:
        raise LrpeError(f"The plug-in {str(copy)!r} of the run cannot be read: {error}.") from error


Failures = dict[str, str]  # reasons by experiment name


def run_experiments(experiments: Iterable[Experiment], runs: Path, processes: int = 1, device: str = "cpu") -> Failures:
    """Run unfinished experiments, after the ones that they start from. A failure does not stop the others."""
    distinct = {each.name: each for each in experiments}
    starts = {each.start.name: each.start for each in distinct.values() if each.start is not None}
    failures = _run_unfinished(list(starts.values()), runs, processes, device)
    left = [each for each in distinct.values() if each.name not in failures]
    ready = [each for each in left if each.start is None or each.start.name not in failures]
    return failures | _run_unfinished(ready, runs, processes, device)


def _run_unfinished(experiments: Sequence[Experiment], runs: Path, processes: int, device: str) -> Failures:
    unfinished = [each for each in experiments if not is_finished(runs / each.name, each)]
    failures = _find_unreadable(unfinished)
    waiting = [each for each in unfinished if each.name not in failures]
    if processes > 1 and len(waiting) > 1:
        return failures | _run_in_processes(waiting, runs, processes, device)
    return failures | {each.name: reason for each in waiting if (reason := attempt(each, runs, device)) is not None}


def _find_unreadable(experiments: Sequence[Experiment]) -> Failures:
    """Return the experiments whose data cannot be loaded, and why.

    Data that several experiments share are loaded once here, so that a wrong path is reported once, and before the
    first of them is trained. It also prepares the data before several processes need them at the same time.
    """
    sharing: dict[str, list[Experiment]] = {}
    for each in experiments:
        sharing.setdefault(to_json(asdict(each.data)), []).append(each)
    failures: Failures = {}
    for group in sharing.values():
        columns = ", ".join(dict.fromkeys(each.column for each in group))
        if len(group) > 1 and (reason := _try(columns, group[0].data.load)) is not None:
            failures |= dict.fromkeys((each.name for each in group), reason)
    return failures


def attempt(experiment: Experiment, runs: Path, device: str) -> str | None:
    """Return why the experiment failed, or None."""
    return _try(title(experiment), lambda: run(experiment, runs, device))


def _try(name: str, act: Callable[[], object]) -> str | None:
    """Return why ``act`` failed, and print it after the name; with several ranks it is raised, so that all end."""
    try:
        act()
    except StoppedError:
        raise
    except Exception as error:
        if world_size() > 1:
            raise
        reason = str(error) if isinstance(error, LrpeError) else f"{type(error).__name__}: {error}"
        if not isinstance(error, LrpeError):
            traceback.print_exc()
        print(f"{name}: {reason}", file=sys.stderr)
        return reason
    return None


def _attempt_on_one_thread(experiment: Experiment, runs: Path, device: str) -> str | None:
    torch.set_num_threads(1)
    return attempt(experiment, runs, device)


def _run_in_processes(experiments: Sequence[Experiment], runs: Path, processes: int, device: str) -> Failures:
    """Run several experiments at the same time with one progress bar, or a line every 30 s without a terminal."""
    with tqdm(total=len(experiments), unit="cell", disable=not sys.stderr.isatty(), dynamic_ncols=True) as bar:
        last = time.monotonic()

        def watch(under_way: Sequence[Experiment], ended: int) -> None:
            nonlocal last
            bar.n, progress = ended, _progress_of(under_way, runs)
            bar.set_postfix_str(progress)
            if bar.disable and time.monotonic() - last > 30:
                last = time.monotonic()
                print(_progress_line(ended, len(experiments), progress), file=sys.stderr, flush=True)

        return run_apart(_attempt_on_one_thread, experiments, runs, processes, device, watch)


def _progress_line(done: int, total: int, others: str) -> str:
    """Return the number of finished experiments, called cells for users, and the progress of running ones.

    >>> _progress_line(0, 2, ""), _progress_line(1, 2, "stdlib, Base, seed 0: 5 updates")
    ('0 of 2 cells are trained', '1 of 2 cells are trained; stdlib, Base, seed 0: 5 updates')
    """
    return "; ".join(filter(None, (f"{done} of {total} cells are trained", others)))


def _progress_of(under_way: Sequence[Experiment], runs: Path) -> str:
    done = [(title(experiment), read_last_update(runs / experiment.name)) for experiment in under_way]
    return "; ".join(f"{name}: {updates} updates" for name, updates in done if updates)
