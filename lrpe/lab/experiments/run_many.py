"""Run the experiments of a table, each once: one after the other, or several at a time in separate processes."""

import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from tqdm import tqdm

from lrpe.errors import LrpeError, StoppedError
from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.pool import run_apart
from lrpe.lab.experiments.run import is_finished, run, title
from lrpe.lab.training.processes import world_size
from lrpe.lab.training.run_files import read_last_update

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
    waiting = [each for each in experiments if not is_finished(runs / each.name, each)]
    if processes > 1 and len(waiting) > 1:
        return _run_in_processes(waiting, runs, processes, device)
    return {each.name: reason for each in waiting if (reason := attempt(each, runs, device)) is not None}


def attempt(experiment: Experiment, runs: Path, device: str) -> str | None:
    """Return why the experiment failed, or None. With several ranks a failure is raised, so that all of them end."""
    try:
        run(experiment, runs, device)
    except StoppedError:
        raise
    except Exception as error:
        if world_size() > 1:
            raise
        reason = str(error) if isinstance(error, LrpeError) else f"{type(error).__name__}: {error}"
        if not isinstance(error, LrpeError):
            traceback.print_exc()
        print(f"{title(experiment)}: {reason}", file=sys.stderr)
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
