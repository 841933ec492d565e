"""A run is a folder: its configuration, where it ran, its metrics and its log."""

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
    """The folder of a run, which the first process alone writes to.

    ``upgrade`` brings a configuration that an earlier version wrote up to date, so that it can be compared.
    """

    def __init__(
        self, folder: Path, config: Config, writes: bool = True, upgrade: Callable[[Config], Config] = lambda old: old
    ):
        self.folder, self.config, self.writes, self.upgrade = folder, config, writes, upgrade
        self.lines, self.text = LineFile(folder / "metrics.jsonl"), LineFile(folder / "train.log")

    def begin(self, about: RunInfo = RunInfo()) -> None:  # noqa: B008 (frozen)
        """Write the configuration of a new run; of one that is there already, see that it is the same, on equal data.

        ``about`` goes into environment.json, beside the versions and the machine.
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
        """Hold the folder, so that no other run has it, such as processes that outlived the torchrun of theirs."""
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
                lock.acquire(timeout=1)  # whoever looks whether the run is under way holds it for an instant
            except Timeout:
                raise LrpeError(
                    f"{str(self.folder)!r} is being trained by another process. End that one, or wait for it."
                ) from None
            for left in self.folder.glob(".*.tmp"):  # of a process that was killed
                remove(left)

    def log(self, text: str) -> None:
        if self.writes:
            self.text.add(text.rstrip())

    def add(self, **values: Any) -> None:
        """Add a line to metrics.jsonl."""
        if self.writes:
            self.lines.add(to_json(values, indent=None))

    def drop_metrics_after(self, update: int) -> None:
        """Drop the metrics of updates that are done again, and say which lines cannot be read."""
        if self.writes:
            kept, damaged = read_metrics(self.folder)
            for text in damaged:
                print(text, file=sys.stderr)
                self.log(text)
            self.lines.rewrite([to_json(line, indent=None) for line in kept if line["update"] <= update])

    def sync(self) -> None:
        """Wait until it is on the disk: a checkpoint that follows has all the metrics before it."""
        if self.writes:
            sync(self.lines.file)


def is_running(folder: Path) -> bool:
    """Whether a process is training in this folder: it holds the lock."""
    lock = folder / ".lock"
    if not lock.is_file() or lock.is_symlink():
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True
    except PermissionError:  # the lock of another user, whose processes cannot be told from here
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
