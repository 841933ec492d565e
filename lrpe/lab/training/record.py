"""Writing a run's folder: its configuration, environment, metrics and log."""

import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import yaml
from filelock import FileLock, Timeout

from lrpe.atomic import remove, sync, write_atomically
from lrpe.errors import LrpeError
from lrpe.lab.stamp import describe_commit, find_cpu_model, find_installed_version
from lrpe.lab.training.processes import run_on_first
from lrpe.lab.training.run_files import RunInfo, read_metrics
from lrpe.lab.training.same_run import Config, check_config, check_data, to_json_values
from lrpe.lab.training.writing import LineFile, naming_failure
from lrpe.serialization import to_json


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
