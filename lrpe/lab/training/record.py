"""The record of a run: its folder, the check that it resumes with the same configuration and data, and its monitors.

Monitors show metrics as the run trains: in the terminal, in TensorBoard, and in Weights & Biases on request.
"""

import importlib
import json
import platform
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
import yaml
from filelock import FileLock, Timeout
from tqdm import tqdm

from lrpe.atomic import remove, sync, write_atomically
from lrpe.errors import LrpeError, require
from lrpe.lab.stamp import describe_commit, find_cpu_model, find_installed_version
from lrpe.lab.training.processes import run_on_first
from lrpe.lab.training.run_files import AppendFile, LineFile, RunInfo, naming_failure, read_metrics, read_run_info
from lrpe.serialization import read_yaml, to_json

# Fields, by section, that affect how a run is computed but not what it learns; a resumed run may change them.
_FREE = {
    "training": {"micro_batch", "workers", "compile", "checkpointing", "parallel", "context_parallel"}
    | {"wandb", "timeout"},
    "checkpoint": {"path"},
}
Config = dict[str, Any]


def check_config(folder: Path, config: Config, upgrade: Callable[[Config], Config] = lambda old: old) -> list[str]:
    """Return the permitted changes since the run started; ``LrpeError`` if anything else changed."""
    before = upgrade(read_yaml(folder / "config.yaml", dict[str, Any]))
    changed = describe_differences(before, to_json_values(config))
    refused = [text for key, text in changed.items() if not may_change(key)]
    more = f" and {len(refused) - 5} more" if len(refused) > 5 else ""
    require(
        not refused,
        f"{str(folder)!r} is a run of another configuration ({'; '.join(refused[:5])}{more}). Use another folder, or "
        "the configuration that the run started with.",
    )
    return list(changed.values())


def check_data(folder: Path, data: dict[str, Any]) -> None:
    """Raise ``LrpeError`` if the data have changed. Facts that the run did not record are not compared."""
    before = flatten(read_run_info(folder).data)
    now = {key: value for key, value in flatten(data).items() if key in before}
    changed = describe_differences({key: before[key] for key in now}, now)
    require(
        not changed,
        f"The data of {str(folder)!r} differ from the data it started with ({'; '.join(list(changed.values())[:3])}). "
        "Restore them to resume, or train on the new data in another folder: --out DIR, with --from "
        f"{folder / 'last'} to start from its weights.",
    )


def may_change(key: str) -> bool:
    """Return whether a resumed run may change a field: how it is computed, its label, the path of initial weights.

    The identity of those weights is fixed by their hash.
    """
    *_, section, name = ["", *key.split(".")]
    return name in _FREE.get(section, ()) or (section in ("", "start") and name == "label")


def to_json_values(values: Config) -> Config:
    """Return values as a file gives them back: tuples become lists."""
    return json.loads(to_json(values))


def describe_differences(before: Config, after: Config) -> dict[str, str]:
    """Return a description of the change of each field that differs."""
    old, new = flatten(before), flatten(after)
    return {key: f"{key}: {_shown(old, key)} there, {_shown(new, key)} now" for key in find_differing_keys(old, new)}


def find_differing_keys(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the keys whose values differ; an absent key, null and an empty value all differ from each other."""
    keys = sorted(key for key in old | new if (key in old) != (key in new) or old[key] != new[key])
    return [key for key in keys if not any(other.startswith(f"{key}.") for other in keys)]  # an empty {} gained keys


def _shown(values: dict[str, Any], key: str) -> str:
    return "absent" if key not in values else "null" if values[key] is None else str(values[key])


def flatten(values: Config, prefix: str = "") -> dict[str, Any]:
    """Return {"a.b": 1, "c": {}} for {"a": {"b": 1}, "c": {}}."""
    flat = {}
    for key, value in values.items():
        deeper = isinstance(value, dict) and value
        flat |= flatten(value, f"{prefix}{key}.") if deeper else {f"{prefix}{key}": value}
    return flat


class Record:
    """The folder of a run, written by the first process only.

    ``upgrade`` converts a configuration written by an earlier version, so that it can be compared.
    """

    def __init__(
        self, folder: Path, config: Config, writes: bool = True, upgrade: Callable[[Config], Config] = lambda old: old
    ):
        self.folder, self.config, self.writes, self.upgrade = folder, config, writes, upgrade
        self.lines, self.text = LineFile(folder / "metrics.jsonl"), LineFile(folder / "train.log")

    def begin(self, about: RunInfo = RunInfo()) -> None:  # noqa: B008 (frozen)
        """Write the configuration of a new run, or check that an existing run has the same configuration and data.

        ``about`` goes into environment.json, next to versions and machine.
        """
        with naming_failure(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            if not (self.folder / "config.yaml").exists():
                known = {"data": about.data, "metric": about.metric, "better": about.better}
                write_atomically(self.folder / "environment.json", to_json(_describe_environment() | known))
                write_atomically(
                    self.folder / "config.yaml", yaml.safe_dump(to_json_values(self.config), sort_keys=False)
                )
                return
        for text in check_config(self.folder, self.config, self.upgrade):
            self.log(f"Changed since the run began: {text}.")
        check_data(self.folder, to_json_values(about.data))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other runs, such as processes that outlived their torchrun."""
        lock = FileLock(self.folder / ".lock")
        run_on_first(lambda: self._take(lock))
        try:
            yield
        finally:
            lock.release()
            self.lines.close()
            self.text.close()

    def _take(self, lock: FileLock) -> None:
        with naming_failure(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=1)  # is_running holds the lock for an instant
            except Timeout:
                raise LrpeError(
                    f"{str(self.folder)!r} is being trained by another process. End that process or wait for it."
                ) from None
            for left in self.folder.glob(".*.tmp"):  # left by a killed process
                remove(left)

    def log(self, text: str) -> None:
        if self.writes:
            self.text.add(text.rstrip())

    def add(self, **values: Any) -> None:
        """Add a line to metrics.jsonl."""
        if self.writes:
            self.lines.add(to_json(values, indent=None))

    def drop_metrics_after(self, update: int) -> None:
        """Drop the metrics of updates that will be repeated, and report damaged lines."""
        if self.writes:
            kept, damaged = read_metrics(self.folder)
            for text in damaged:
                print(text, file=sys.stderr)
                self.log(text)
            self.lines.rewrite([to_json(line, indent=None) for line in kept if line["update"] <= update])

    def sync(self) -> None:
        """Wait until the metrics are on disk, so that a checkpoint never exists without the metrics before it."""
        if self.writes:
            sync(self.lines.file)


def is_running(folder: Path) -> bool:
    """Return whether a process is training in this folder, that is, holds its lock."""
    lock = folder / ".lock"
    if not lock.is_file() or lock.is_symlink():
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True
    except PermissionError:  # another user's lock, which we cannot test
        return False


def _describe_environment() -> dict[str, Any]:
    packages = ("lrpe", "torch", "transformers", "tokenizers", "numpy")
    return {
        **describe_commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": find_cpu_model(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "versions": {package: find_installed_version(package) for package in packages},
    }


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
