"""A run is a folder: its configuration, its metrics, its log, its checkpoints, and links to the last and the best."""

import json
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import yaml

from lrpe.errors import LrpeError, require
from lrpe.training.checkpoint import find_checkpoints, read_progress
from lrpe.whole import temporary_name, write_whole

KEPT = 2  # checkpoints beside the best
# Fields that say how a run is computed, and not what it learns: these may change on the way.
FREE = {"micro_batch", "workers", "compile", "checkpointing", "parallel", "wandb", "evaluation_batch"}


class Record:
    """The folder of a run. Only the first process writes to it."""

    def __init__(self, folder: Path, config: dict[str, Any], writes: bool = True, about: dict[str, Any] | None = None):
        self.folder, self.checkpoints, self.writes = folder, folder / "checkpoints", writes
        if writes:
            folder.mkdir(parents=True, exist_ok=True)
            self.check_config(config, about or {})

    def check_config(self, config: dict[str, Any], about: dict[str, Any]) -> None:
        """Write the configuration of a new run; of one that is there already, see that it is the same."""
        file = self.folder / "config.yaml"
        if not file.exists():
            write_whole(file, yaml.safe_dump(config, sort_keys=False))
            write_whole(self.folder / "environment.json", json.dumps(environment() | about, indent=2))
            return
        before = flattened(yaml.safe_load(file.read_text(encoding="utf-8")))
        after = flattened(yaml.safe_load(yaml.safe_dump(config)))
        compared = {key for key in before | after if key.rpartition(".")[2] not in FREE}
        changed = sorted(key for key in compared if before.get(key) != after.get(key))
        shown = ", ".join(f"{key}: {before.get(key)} there, {after.get(key)} now" for key in changed[:5])
        require(not changed, f"{str(self.folder)!r} is a run of another configuration ({shown}). Name another folder.")

    def log(self, text: str) -> None:
        if self.writes:
            with (self.folder / "train.log").open("a", encoding="utf-8") as file:
                file.write(text.rstrip() + "\n")

    def add(self, **values: Any) -> None:
        """A line of metrics.jsonl."""
        if self.writes:
            with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All lines of metrics.jsonl; one that a power cut left half-written does not count."""
        file = self.folder / "metrics.jsonl"
        found = []
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            try:
                found.append(json.loads(line))
            except ValueError:
                break
        return found

    def forget_after(self, update: int) -> None:
        """Drop the metrics of updates that are done again."""
        if self.writes:
            kept = [line for line in self.metrics() if line["update"] <= update]
            write_whole(self.folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in kept))

    def place(self, update: int) -> Path:
        return self.checkpoints / f"step-{update:08d}"

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """The newest checkpoint that is whole, and how far it is; a damaged one is named and passed over."""
        for folder in find_checkpoints(self.checkpoints):
            try:
                return folder, read_progress(folder)
            except LrpeError as error:
                if self.writes:
                    print(f"{error} The one before it is used.", file=sys.stderr)
                    self.log(str(error))
        return None

    def mark(self, update: int, best: bool) -> None:
        """``last``, and ``best`` if it is, now lead to this checkpoint; others that neither needs are removed."""
        if not self.writes:
            return
        for name in ("last", "best") if best else ("last",):
            link(self.folder / name, self.place(update))
        needed = {(self.folder / name).resolve() for name in ("last", "best")}
        for old in find_checkpoints(self.checkpoints)[KEPT:]:
            if old.resolve() not in needed:
                (old / "checkpoint.json").unlink()  # first it is no checkpoint any more
                shutil.rmtree(old, ignore_errors=True)


def link(name: Path, target: Path) -> None:
    temporary = temporary_name(name)
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(target, name.parent))
    temporary.replace(name)


def flattened(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    found = {}
    for key, value in values.items():
        found |= flattened(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def environment() -> dict[str, Any]:
    from lrpe.stamp import commit, cpu_model, installed_version

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
