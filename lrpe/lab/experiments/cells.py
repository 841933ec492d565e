"""Train the cells of a table, each once: one after the other, or several at a time in separate processes."""

import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from tqdm import tqdm

from lrpe.errors import LrpeError, StoppedError
from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.pool import train_apart
from lrpe.lab.experiments.run import is_finished, run, title
from lrpe.lab.training.processes import world_size
from lrpe.lab.training.run_files import read_last_update

Failures = dict[str, str]  # reasons by experiment name


def run_cells(cells: Iterable[Experiment], runs: Path, processes: int = 1, device: str = "cpu") -> Failures:
    """Train unfinished cells, after the ones whose weights they start from. A failure does not stop the others."""
    distinct = {cell.name: cell for cell in cells}
    starts = {cell.start.name: cell.start for cell in distinct.values() if cell.start is not None}
    failures = run_all(list(starts.values()), runs, processes, device)
    left = [cell for cell in distinct.values() if cell.name not in failures]
    ready = [cell for cell in left if cell.start is None or cell.start.name not in failures]
    return failures | run_all(ready, runs, processes, device)


def run_all(cells: Sequence[Experiment], runs: Path, processes: int, device: str) -> Failures:
    waiting = [cell for cell in cells if not is_finished(runs / cell.name, cell)]
    if processes > 1 and len(waiting) > 1:
        return _run_apart(waiting, runs, processes, device)
    return {cell.name: reason for cell in waiting if (reason := attempt(cell, runs, device)) is not None}


def attempt(cell: Experiment, runs: Path, device: str) -> str | None:
    """Return why the cell failed, or None. With several ranks a failure is raised, so that all of them end."""
    try:
        run(cell, runs, device)
    except StoppedError:
        raise
    except Exception as error:
        if world_size() > 1:
            raise
        reason = str(error) if isinstance(error, LrpeError) else f"{type(error).__name__}: {error}"
        if not isinstance(error, LrpeError):
            traceback.print_exc()
        print(f"{title(cell)}: {reason}", file=sys.stderr)
        return reason
    return None


def _attempt_on_one_thread(cell: Experiment, runs: Path, device: str) -> str | None:
    torch.set_num_threads(1)
    return attempt(cell, runs, device)


def _run_apart(cells: Sequence[Experiment], runs: Path, processes: int, device: str) -> Failures:
    """Train several cells at the same time with one progress bar, or a line every 30 s without a terminal."""
    with tqdm(total=len(cells), unit="cell", disable=not sys.stderr.isatty(), dynamic_ncols=True) as bar:
        last = time.monotonic()

        def watch(under_way: Sequence[Experiment], ended: int) -> None:
            nonlocal last
            bar.n = ended
            bar.set_postfix_str(_progress_of(under_way, runs))
            if bar.disable and time.monotonic() - last > 30:
                last = time.monotonic()
                print(_progress_line(ended, len(cells), _progress_of(under_way, runs)), file=sys.stderr, flush=True)

        return train_apart(_attempt_on_one_thread, cells, runs, processes, device, watch)


def _progress_line(done: int, total: int, others: str) -> str:
    """Return the number of trained cells, and the progress of running ones if any.

    >>> _progress_line(0, 2, ""), _progress_line(1, 2, "stdlib, Base, seed 0: 5 updates")
    ('0 of 2 cells are trained', '1 of 2 cells are trained; stdlib, Base, seed 0: 5 updates')
    """
    return "; ".join(filter(None, (f"{done} of {total} cells are trained", others)))


def _progress_of(under_way: Sequence[Experiment], runs: Path) -> str:
    done = [(title(cell), read_last_update(runs / cell.name)) for cell in under_way]
    return "; ".join(f"{name}: {updates} updates" for name, updates in done if updates)
