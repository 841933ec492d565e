"""The cells of a table, each trained once: one after the other, or several at a time, each in a process of its own."""

import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from lrpe.errors import LrpeError, StoppedError
from lrpe.experiments.experiment import Experiment
from lrpe.experiments.listing import updates_done
from lrpe.experiments.run import finished, run, title
from lrpe.training.processes import world

Failures = dict[str, str]  # why, by the name of the experiment


def run_cells(cells: Iterable[Experiment], runs: Path, processes: int = 1, device: str = "cpu") -> Failures:
    """Train what is not trained yet. A cell that fails does not stop the others; what they begin with comes first."""
    distinct = {cell.name: cell for cell in cells}
    starts = {cell.start.name: cell.start for cell in distinct.values() if cell.start is not None}
    failures = run_all(list(starts.values()), runs, processes, device)
    left = [cell for cell in distinct.values() if cell.name not in failures]
    ready = [cell for cell in left if cell.start is None or cell.start.name not in failures]
    return failures | run_all(ready, runs, processes, device)


def run_all(cells: Sequence[Experiment], runs: Path, processes: int, device: str) -> Failures:
    waiting = [cell for cell in cells if not finished(runs / cell.name, cell)]
    if processes > 1 and len(waiting) > 1:
        return run_apart(waiting, runs, processes, device)
    return {cell.name: reason for cell in waiting if (reason := attempt(cell, runs, device)) is not None}


def attempt(cell: Experiment, runs: Path, device: str) -> str | None:
    """Why the cell failed, if it did. Of several processes none goes on without the others: they all end."""
    try:
        run(cell, runs, device)
    except StoppedError:
        raise
    except Exception as error:
        if world() > 1:
            raise
        reason = str(error) if isinstance(error, LrpeError) else f"{type(error).__name__}: {error}"
        if not isinstance(error, LrpeError):
            traceback.print_exc()
        print(f"{title(cell)}: {reason}", file=sys.stderr)
        return reason
    return None


def run_apart(cells: Sequence[Experiment], runs: Path, processes: int, device: str) -> Failures:
    """So many at a time, each on one thread."""
    context = get_context("spawn")
    stopping = context.Event()
    with ProcessPoolExecutor(processes, context, initializer=begin, initargs=(stopping,)) as pool:
        futures = {cell.name: pool.submit(attempt_alone, cell, runs, device) for cell in cells}
        try:
            watch(cells, runs, futures)
        except BaseException:  # what is not begun never begins; what is under way saves itself and ends
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()
            raise
        return {name: reason for name, future in futures.items() if (reason := outcome(future)) is not None}


def outcome(future: "Future[str | None]") -> str | None:
    try:
        return future.result()
    except BrokenProcessPool:
        return "A process was killed from outside, perhaps for want of memory; fewer --processes need less."


def begin(stopping: Any) -> None:
    """A process that trains: on one thread, and told of the end by ``stopping``."""
    global STOPPING
    STOPPING = stopping
    torch.set_num_threads(1)


STOPPING: Any = None


def attempt_alone(cell: Experiment, runs: Path, device: str) -> str | None:
    return None if STOPPING.is_set() else attempt(cell, runs, device)


def watch(cells: Sequence[Experiment], runs: Path, futures: dict[str, "Future[str | None]"]) -> None:
    """A bar over the cells while they train, and which of them are under way; a line now and then if not a terminal."""
    with tqdm(total=len(cells), unit="cell", disable=not sys.stderr.isatty(), dynamic_ncols=True) as bar:
        last = time.monotonic()
        while not all(future.done() for future in futures.values()):
            bar.n = sum(future.done() for future in futures.values())
            bar.set_postfix_str(under_way(cells, runs, futures))
            if bar.disable and time.monotonic() - last > 30:
                last = time.monotonic()
                line = progress_line(bar.n, len(cells), under_way(cells, runs, futures))
                print(line, file=sys.stderr, flush=True)
            time.sleep(0.5)
        bar.n = len(cells)


def progress_line(done: int, total: int, others: str) -> str:
    """Return how many cells are trained, and which others are under way if any has an update behind it.

    >>> progress_line(0, 2, ""), progress_line(1, 2, "stdlib, Base, seed 0: 5 updates")
    ('0 of 2 cells are trained', '1 of 2 cells are trained; stdlib, Base, seed 0: 5 updates')
    """
    return "; ".join(filter(None, (f"{done} of {total} cells are trained", others)))


def under_way(cells: Sequence[Experiment], runs: Path, futures: dict[str, "Future[str | None]"]) -> str:
    done = [(title(cell), updates_done(runs / cell.name)) for cell in cells if futures[cell.name].running()]
    return "; ".join(f"{name}: {updates} updates" for name, updates in done if updates)
