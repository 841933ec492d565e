"""The checkpoints of a run: which one to resume from, which to keep, and links to the last and the best."""

import os
import re
from pathlib import Path
from typing import Any

from lrpe.atomic import remove, temporary_name
from lrpe.errors import LrpeError, require
from lrpe.lab.training.checkpoint import DONE, Progress, read_progress
from lrpe.lab.training.run_files import naming_failure
from lrpe.schema import conform_known
from lrpe.serialization import read_json

_KEPT = 2  # newest checkpoints, in addition to the best: one is left if the other is damaged


class CheckpointHistory:
    """The folders step-N of a run. Only the first process may call methods that change them."""

    def __init__(self, folder: Path):
        self.run, self.folder = folder, folder / "checkpoints"
        self.damaged: list[str] = []  # messages about damaged checkpoints that were skipped

    def path_of(self, update: int) -> Path:
        return self.folder / f"step-{update:08d}"

    def list_all(self) -> list[Path]:
        """Return the checkpoint folders, newest first."""
        folders = [file.parent for file in self.folder.glob(f"step-*/{DONE}")]
        return sorted((folder for folder in folders if re.fullmatch(r"step-\d{8,}", folder.name)), reverse=True)

    def find_newest(self) -> Progress | None:
        """Return the progress of the newest undamaged checkpoint; rename damaged ones and list them in ``damaged``."""
        self._sweep()
        for folder in self.list_all():
            try:
                return self._read(folder)
            except LrpeError as error:
                self.damaged.append(str(error))
                _put_aside(folder, "damaged")
        return None

    def _read(self, folder: Path) -> Progress:
        progress = read_progress(folder)
        right = self.path_of(progress.update) == folder
        require(right, f"The checkpoint {folder} is damaged: its checkpoint.json is of update {progress.update}.")
        return progress

    def withdraw(self, update: int) -> Progress | None:
        """Rename the checkpoint whose weights diverged, and return the progress of the newest remaining one."""
        if self.path_of(update).exists():
            _put_aside(self.path_of(update), "diverged")
        left = self.find_newest()
        if left is not None:
            self.link(left.update, None if left.best is None else left.best[0])
        for name in ("last", "best"):
            if not (self.run / name).exists():  # a dangling link
                remove(self.run / name)
        return left

    def _sweep(self) -> None:
        """Remove folders that a killed process was writing or removing."""
        begun = [path for path in self.folder.glob("step-*") if not (path / DONE).exists()]
        for path in (*begun, *self.folder.glob(".step-*.tmp")):
            remove(path)

    def link(self, last: int, best: int | None) -> None:
        """Point the links ``last`` and ``best`` at the checkpoints of these updates, and remove old checkpoints."""
        wanted = {"last": self.path_of(last)} | ({} if best is None else {"best": self.path_of(best)})
        for name, folder in wanted.items():
            with naming_failure(self.run / name):
                _link(self.run / name, folder)
        checkpoints = self.list_all()
        needed = {
            *wanted.values(),
            *(self.path_of(best) for best in map(_best_of, checkpoints[:_KEPT]) if best is not None),
        }
        for old in checkpoints[_KEPT:]:
            if old not in needed:
                (old / DONE).unlink()  # first, so that a kill in between leaves no half checkpoint
                remove(old)


def _best_of(checkpoint: Path) -> int | None:
    """Return the best update as of this checkpoint, which is the best again if the run resumes from here."""
    try:
        best = conform_known(read_json(checkpoint / DONE, dict[str, Any]), Progress).best
    except LrpeError:
        return None  # damaged; reported by find_newest if the run needs it
    return None if best is None else best[0]


def _put_aside(folder: Path, why: str) -> None:
    aside = folder.with_name(f"{why}-{folder.name}")
    with naming_failure(aside):
        remove(aside)
        folder.rename(aside)


def _link(name: Path, target: Path) -> None:
    temporary = temporary_name(name)
    temporary.symlink_to(os.path.relpath(target, name.parent))
    temporary.replace(name)
