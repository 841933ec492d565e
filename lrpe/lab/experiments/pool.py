"""Run several experiments at the same time, each in a process that ends when its parent ends."""

import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lrpe.errors import StoppedError
from lrpe.lab.data.jobs import end_with_parent
from lrpe.plugins import Plugin, loaded_plugins, run_plugin

if TYPE_CHECKING:  # importing it takes seconds, which every process would wait
    from lrpe.lab.experiments.experiment import Experiment


_Attempt = Callable[[Any, Path, str], str | None]  # runs an experiment and returns why it failed, or None
_GRACE = 120.0  # seconds in which an experiment may save itself after its parent is killed
KILLED = "A process was killed from outside, perhaps because memory ran out; use fewer processes."

# A server that has imported everything forks processes that start at once.
_FORKS = "forkserver" in get_all_start_methods()
_CONTEXT: Any = get_context("forkserver" if _FORKS else "spawn")


@dataclass(frozen=True)
class _Worker:
    """An experiment that is running in a separate process."""

    experiment: "Experiment"
    process: BaseProcess
    answer: Connection

    def outcome(self) -> str | None:
        """Return why the experiment failed, or None; the process has ended."""
        try:
            return self.answer.recv() if self.answer.poll() else KILLED
        except EOFError:
            return KILLED


def run_apart(
    attempt: _Attempt, experiments: Sequence["Experiment"], runs: Path, processes: int, device: str, watch: Callable
) -> dict[str, str]:
    """Run experiments, ``processes`` at a time; return the reasons of failures by experiment name.

    Args:
        attempt: runs an experiment.
        experiments, runs, device: the experiments, the folder of all runs and the device.
        processes: number of experiments to run at the same time.
        watch: called twice per second with the running experiments and the number of ended ones.
    """
    if _FORKS:
        _CONTEXT.set_forkserver_preload([attempt.__module__])
    waiting, workers, failures, ended = list(experiments), [], {}, 0
    try:
        while waiting or workers:
            while waiting and len(workers) < processes:
                workers.append(_begin(attempt, waiting.pop(0), runs, device))
            wait([worker.process.sentinel for worker in workers], timeout=0.5)
            for worker in [each for each in workers if not each.process.is_alive()]:
                workers.remove(worker)
                ended += 1
                if (reason := worker.outcome()) is not None:
                    failures[worker.experiment.name] = reason
            watch([worker.experiment for worker in workers], ended)
    except BaseException:  # waiting experiments never start; running ones save themselves and end
        _end(workers)
        raise
    return failures


def _begin(attempt: _Attempt, experiment: "Experiment", runs: Path, device: str) -> _Worker:
    answer, report = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_work, args=(attempt, experiment, runs, device, report, loaded_plugins()))
    process.start()
    report.close()
    return _Worker(experiment, process, answer)


def _work(
    attempt: _Attempt,
    experiment: "Experiment",
    runs: Path,
    device: str,
    report: Connection,
    plugins: Sequence[Plugin],
) -> None:
    """Train in the child process, with the parent's plug-ins.

    It ignores Ctrl-C: the parent handles it and asks the child to save itself.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(_GRACE)
    for plugin in plugins:
        run_plugin(plugin)
    try:
        report.send(attempt(experiment, runs, device))
    except StoppedError as stopped:
        report.send(str(stopped))


def _end(workers: Sequence[_Worker]) -> None:
    """Ask each worker to save itself, and wait; an interrupt ends them at once, and keeps what was saved."""
    try:
        for worker in workers:
            worker.process.terminate()
        if workers:
            print("Saving running cells. Press Ctrl-C again to end them at once.", file=sys.stderr, flush=True)
        for worker in workers:
            worker.process.join()
    finally:
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.join()
