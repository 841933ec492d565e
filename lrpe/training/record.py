"""A run is a folder: its configuration, where it ran, its metrics and its log."""

import json
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import yaml
from filelock import FileLock, Timeout

from lrpe.errors import LrpeError, require
from lrpe.stamp import commit, cpu_model, installed_version
from lrpe.training.processes import on_first
from lrpe.training.writing import Lines, naming_failure
from lrpe.whole import sync, write_whole

# Fields that say how a run is computed, and not what it learns: these may change on the way.
FREE = {"micro_batch", "workers", "compile", "checkpointing", "parallel", "wandb"}


class Record:
    """The folder of a run, which the first process alone writes to."""

    def __init__(self, folder: Path, config: dict[str, Any], writes: bool = True):
        self.folder, self.config, self.writes = folder, config, writes
        self.lines, self.text = Lines(folder / "metrics.jsonl"), Lines(folder / "train.log")

    def begin(self, about: dict[str, Any] | None = None) -> None:
        """Write the configuration of a new run; of one that is there already, see that it is the same.

        ``about`` goes into environment.json, beside the versions and the machine: the hashes of the data, for one.
        """
        with naming_failure(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self.compare_or_write(as_read(self.config), as_read(about or {}))

    def compare_or_write(self, config: dict[str, Any], about: dict[str, Any]) -> None:
        file, environment_file = self.folder / "config.yaml", self.folder / "environment.json"
        if not file.exists():
            write_whole(environment_file, json.dumps(environment() | about, indent=2))
            write_whole(file, yaml.safe_dump(config, sort_keys=False))
            return
        changed = check_config(self.folder, config)
        before = json.loads(environment_file.read_text(encoding="utf-8")) if environment_file.exists() else {}
        changed |= differences({key: before.get(key) for key in about}, about)
        for text in changed.values():
            self.log(f"Changed since the run began: {text}.")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While no other run has this folder, such as processes that outlived the torchrun that started them."""
        lock = FileLock(self.folder / ".lock")
        on_first(lambda: take(lock, self.folder))
        try:
            yield
        finally:
            lock.release()
            self.lines.close()
            self.text.close()

    def log(self, text: str) -> None:
        if self.writes:
            self.text.add(text.rstrip())

    def add(self, **values: Any) -> None:
        """A line of metrics.jsonl."""
        if self.writes:
            self.lines.add(json.dumps(values))

    def metrics(self) -> list[dict[str, Any]]:
        """All lines of metrics.jsonl; one that a power cut left half-written does not count."""
        found = []
        for line in self.lines.read():
            try:
                found.append(json.loads(line))
            except ValueError:
                break
        return found

    def forget_after(self, update: int) -> None:
        """Drop the metrics of updates that are done again."""
        if self.writes:
            self.lines.rewrite([json.dumps(line) for line in self.metrics() if line["update"] <= update])

    def sync(self) -> None:
        """Wait until it is on the disk: a checkpoint that follows has all the metrics before it."""
        if self.writes:
            sync(self.lines.file)


def check_config(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """What is changed since the run began, which is no more than how it is computed: else it is another run."""
    changed = differences(yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")), config)
    refused = [text for key, text in changed.items() if key.rpartition(".")[2] not in FREE]
    shown = ", ".join(refused[:5])
    require(not refused, f"{str(folder)!r} is a run of another configuration ({shown}). Name another folder.")
    return changed


def take(lock: FileLock, folder: Path) -> None:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise LrpeError(f"{str(folder)!r} is being trained by another process. End that one, or wait for it.") from None


def as_read(values: dict[str, Any]) -> dict[str, Any]:
    """As they are when they come back from a file: lists for tuples."""
    return json.loads(json.dumps(values))


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    """Of each field that has changed, from what to what."""
    old, new = flattened(before), flattened(after)
    changed = sorted(key for key in old | new if old.get(key) != new.get(key))
    return {key: f"{key}: {old.get(key)} there, {new.get(key)} now" for key in changed}


def flattened(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    found = {}
    for key, value in values.items():
        found |= flattened(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def environment() -> dict[str, Any]:
    packages = ("lrpe", "torch", "transformers", "tokenizers", "numpy")
    return {
        **commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": cpu_model(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "versions": {package: installed_version(package) for package in packages},
    }
