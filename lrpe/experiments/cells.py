"""The cells of a table, each trained once: one after the other, or several at a time, each in a process of its own."""

import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from lrpe.errors import LrpeError
from lrpe.experiments.experiment import Experiment
from lrpe.experiments.listing import updates_done
from lrpe.experiments.run import finished, run, title

Failures = dict[str, str]  # why, by the name of the experiment


def run_cells(cells: Iterable[Experiment], runs: Path, processes: int = 1, device: str = "cpu") -> Failures:
    """Train what is not trained yet. A cell that fails does not stop the others; what they begin with comes first."""
    distinct = {cell.name: cell for cell in cells}
    starts = {cell.start.name: cell.start for cell in distinct.values() if cell.start is not None}
    failures = run_all(list(starts.values()), runs, processes, device)
    ready = [cell for cell in distinct.values() if cell.start is None or cell.start.name not in failures]
    return failures | run_all(ready, runs, processes, device)


def run_all(cells: Sequence[Experiment], runs: Path, processes: int, device: str) -> Failures:
    waiting = [cell for cell in cells if not finished(runs / cell.name, cell)]
    if processes > 1 and len(waiting) > 1:
        return run_apart(waiting, runs, processes, device)
    return {cell.name: str(error) for cell in waiting if (error := attempt(cell, runs, device)) is not None}


def attempt(cell: Experiment, runs: Path, device: str) -> LrpeError | None:
    try:
        run(cell, runs, device)
    except LrpeError as error:
        print(f"{title(cell)}: {error}", file=sys.stderr)
        return error
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
        return {name: str(error) for name, future in futures.items() if (error := future.result()) is not None}


def begin(stopping: Any) -> None:
    """A process that trains: on one thread, and told of the end by ``stopping``."""
    global STOPPING
    STOPPING = stopping
    torch.set_num_threads(1)


STOPPING: Any = None


def attempt_alone(cell: Experiment, runs: Path, device: str) -> LrpeError | None:
    return None if STOPPING.is_set() else attempt(cell, runs, device)


def watch(cells: Sequence[Experiment], runs: Path, futures: dict[str, "Future[LrpeError | None]"]) -> None:
    """A bar over the cells while they train, and which of them are under way; a line now and then if not a terminal."""
    with tqdm(total=len(cells), unit="cell", disable=not sys.stderr.isatty(), dynamic_ncols=True) as bar:
        last = time.monotonic()
        while not all(future.done() for future in futures.values()):
            bar.n = sum(future.done() for future in futures.values())
            bar.set_postfix_str(under_way(cells, runs, futures))
            if bar.disable and time.monotonic() - last > 30:
                last = time.monotonic()
                print(f"{bar.n} of {len(cells)} cells; {under_way(cells, runs, futures)}", file=sys.stderr, flush=True)
            time.sleep(0.5)
        bar.n = len(cells)


def under_way(cells: Sequence[Experiment], runs: Path, futures: dict[str, "Future[LrpeError | None]"]) -> str:
    done = [(title(cell), updates_done(runs / cell.name)) for cell in cells if futures[cell.name].running()]
    return "; ".join(f"{name}: {updates} updates" for name, updates in done if updates)
