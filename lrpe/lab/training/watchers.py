"""Who else is told of a run's metrics, beside its record: TensorBoard, and Weights & Biases on request."""

import importlib
import time
from abc import ABC, abstractmethod
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from lrpe.atomic import write_atomically
from lrpe.errors import LrpeError
from lrpe.lab.training.writing import Growing, naming_failure

Figures = dict[str, float]


class Watcher(ABC):
    @abstractmethod
    def add(self, update: int, figures: Figures) -> None:
        """Figures of an update."""

    @abstractmethod
    def close(self) -> None:
        """No more will come."""


class TensorBoard(Watcher):
    """A file of events in a run's folder, one event an update; what was told of updates after ``done`` is withdrawn."""

    def __init__(self, folder: Path, done: int):
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.events: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
        self.summaries: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        with naming_failure(folder):
            (folder / "tensorboard").mkdir(exist_ok=True)
        self.writer = RecordWriter(Growing(folder / "tensorboard" / f"events.out.tfevents.{time.time():017.6f}"))
        self.write(file_version="brain.Event:2")
        self.write(step=done + 1, session_log=self.events.SessionLog(status=self.events.SessionLog.START))

    def add(self, update: int, figures: Figures) -> None:
        value = self.summaries.Summary.Value
        values = [value(tag=name.replace(" ", "/"), simple_value=figure) for name, figure in figures.items()]
        self.write(step=update, summary=self.summaries.Summary(value=values))

    def write(self, **fields: Any) -> None:
        self.writer.write(self.events.Event(wall_time=time.time(), **fields).SerializeToString())

    def close(self) -> None:
        self.writer.close()


class Wandb(Watcher):
    """A run of a project of Weights & Biases, taken up again when ours is."""

    def __init__(self, folder: Path, project: str, title: str, config: dict[str, Any]):
        wandb: Any = importlib.import_module("wandb")
        self.run = wandb.init(
            project=project, name=title, config=config, id=own_id(folder / "wandb-id"), resume="allow", dir=folder
        )

    def add(self, update: int, figures: Figures) -> None:
        self.run.log(figures, step=update)

    def close(self) -> None:
        self.run.finish()


def own_id(file: Path) -> str:
    """By which a run is known elsewhere: drawn once, and kept in its folder."""
    if not file.exists():
        with naming_failure(file):
            write_atomically(file, uuid4().hex)
    return file.read_text(encoding="utf-8")


def choose_watchers(folder: Path, done: int, project: str | None, title: str, config: dict[str, Any]) -> list[Watcher]:
    """TensorBoard if it is installed; Weights & Biases if a project is named."""
    watchers: list[Watcher] = [TensorBoard(folder, done)] if find_spec("tensorboard") else []
    if project is not None:
        if find_spec("wandb") is None:
            raise LrpeError("Weights & Biases is not installed: pip install wandb, or leave wandb out.")
        watchers.append(Wandb(folder, project, title, config))
    return watchers
