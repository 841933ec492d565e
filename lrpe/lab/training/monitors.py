"""Show the metrics of a run as it trains: in the terminal, in TensorBoard, and in Weights & Biases on request."""

import importlib
import sys
import time
from abc import ABC, abstractmethod
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from tqdm import tqdm

from lrpe.atomic import write_atomically
from lrpe.errors import LrpeError
from lrpe.lab.training.run_files import AppendFile, naming_failure

Metrics = dict[str, float]


class Monitor(ABC):
    @abstractmethod
    def add(self, update: int, figures: Metrics) -> None:
        """Add the metrics of one update."""

    @abstractmethod
    def close(self) -> None:
        """Finish writing."""


class _TensorBoard(Monitor):
    """Writes an event per update to the run's folder; events of earlier processes after update ``done`` are dropped."""

    # Not SummaryWriter, because it writes in a thread of its own: a full disk prints a traceback there and stops the
    # run only at a later call. Here the failing write itself raises the LrpeError that names the file. SummaryWriter
    # also puts the machine's name into the file name, and run folders are shared.

    def __init__(self, folder: Path, done: int):
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.events: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
        self.summaries: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        with naming_failure(folder):
            (folder / "tensorboard").mkdir(exist_ok=True)
        self.writer = RecordWriter(AppendFile(folder / "tensorboard" / f"events.out.tfevents.{time.time():017.6f}"))
        self.write(file_version="brain.Event:2")
        self.write(step=done + 1, session_log=self.events.SessionLog(status=self.events.SessionLog.START))

    def add(self, update: int, figures: Metrics) -> None:
        value = self.summaries.Summary.Value
        values = [value(tag=name.replace(" ", "/"), simple_value=figure) for name, figure in figures.items()]
        self.write(step=update, summary=self.summaries.Summary(value=values))

    def write(self, **fields: Any) -> None:
        self.writer.write(self.events.Event(wall_time=time.time(), **fields).SerializeToString())

    def close(self) -> None:
        self.writer.close()


class _Wandb(Monitor):
    """A run of a Weights & Biases project, resumed when ours is."""

    def __init__(self, folder: Path, project: str, title: str, config: dict[str, Any]):
        wandb: Any = importlib.import_module("wandb")
        self.run = wandb.init(
            project=project,
            name=title,
            config=config,
            id=_read_or_draw_id(folder / "wandb-id"),
            resume="allow",
            dir=folder,
        )

    def add(self, update: int, figures: Metrics) -> None:
        self.run.log(figures, step=update)

    def close(self) -> None:
        self.run.finish()


def _read_or_draw_id(file: Path) -> str:
    """Return the run's Weights & Biases id, drawn once and kept in its folder."""
    if not file.exists():
        with naming_failure(file):
            write_atomically(file, uuid4().hex)
    return file.read_text(encoding="utf-8")


def choose_monitors(folder: Path, done: int, project: str | None, title: str, config: dict[str, Any]) -> list[Monitor]:
    """Return TensorBoard if it is installed, and Weights & Biases if a project is named."""
    monitors: list[Monitor] = [_TensorBoard(folder, done)] if find_spec("tensorboard") else []
    if project is not None:
        if find_spec("wandb") is None:
            raise LrpeError("Weights & Biases is not installed: pip install wandb, or leave wandb out.")
        monitors.append(_Wandb(folder, project, title, config))
    return monitors


_SECONDS_BETWEEN_LINES = 10.0  # without a terminal; a live bar is redrawn five times per second


class ProgressBar:
    """Shows loss, metric, tokens per second and time left; the last two are means since this process started."""

    def __init__(self, title: str, total: int, done: int, shown: bool):
        self.title, self.total, self.begun, self.shown = title, total, done, shown
        live = shown and sys.stderr.isatty()
        self.bar = tqdm(total=total, initial=done, desc=title, unit="update", dynamic_ncols=True) if live else None
        self.pause = 0.2 if live else _SECONDS_BETWEEN_LINES
        self.started = self.last = time.monotonic()
        self.handled = 0.0

    def show(self, update: int, handled: float, unit: str, figures: dict[str, float]) -> None:
        """Show an update that processed ``handled`` tokens or samples."""
        now = time.monotonic()
        self.handled += handled
        if self.shown and (now - self.last >= self.pause or update == self.total):
            self.last = now
            self.draw(update, unit, figures, now - self.started)

    def draw(self, update: int, unit: str, figures: dict[str, float], seconds: float) -> None:
        text = ", ".join(f"{name} {figure:.4g}" for name, figure in figures.items())
        text += f", {tqdm.format_sizeof(self.handled / max(seconds, 1e-9))} {unit}/s"
        if self.bar is not None:
            self.bar.n = update
            self.bar.set_postfix_str(text)
            return
        left = tqdm.format_interval(seconds * (self.total - update) / (update - self.begun))
        print(f"{self.title}: update {update} of {self.total}, {text}, {left} left", file=sys.stderr, flush=True)

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.close()
