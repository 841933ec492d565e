"""The checkpoints of a run: which to go on from, which to keep, and links to the last and the best."""

import os
import re
from pathlib import Path
from typing import Any

from lrpe.atomic import remove, temporary_name
from lrpe.errors import LrpeError, require
from lrpe.lab.training.checkpoint import DONE, Progress, read_progress
from lrpe.lab.training.writing import naming_failure
from lrpe.schema import conform_known
from lrpe.serialization import read_json

_KEPT = 2  # beside the best


class CheckpointHistory:
    """Folders step-N of checkpoints. Only one process may change them."""

    def __init__(self, folder: Path):
        self.run, self.folder = folder, folder / "checkpoints"
        self.damaged: list[str] = []  # what was passed over, and why

    def path_of(self, update: int) -> Path:
        return self.folder / f"step-{update:08d}"

    def list_all(self) -> list[Path]:
        """List the checkpoints, the newest first."""
        folders = [file.parent for file in self.folder.glob(f"step-*/{DONE}")]
        return sorted((folder for folder in folders if re.fullmatch(r"step-\d{8,}", folder.name)), reverse=True)

    def find_newest(self) -> Progress | None:
        """Return how far the newest whole checkpoint is. Damaged ones are put aside and noted in ``damaged``."""
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
        require(right, f"The checkpoint {folder} is damaged: it says that it is of update {progress.update}.")
        return progress

    def withdraw(self, update: int) -> Progress | None:
        """Put aside the checkpoint of weights that gave no finite loss; return how far the newest one left is."""
        if self.path_of(update).exists():
            _put_aside(self.path_of(update), "diverged")
        left = self.find_newest()
        if left is not None:
            self.link(left.update, None if left.best is None else left.best[0])
        for name in ("last", "best"):
            if not (self.run / name).exists():  # a link that leads nowhere now
                remove(self.run / name)
        return left

    def _sweep(self) -> None:
        """Remove what a process that was killed had begun to write, or to remove."""
        begun = [path for path in self.folder.glob("step-*") if not (path / DONE).exists()]
        for path in (*begun, *self.folder.glob(".step-*.tmp")):
            remove(path)

    def link(self, last: int, best: int | None) -> None:
        """Link ``last`` and ``best`` to these updates' checkpoints, and remove others that are not needed."""
        wanted = {"last": self.path_of(last)} | ({} if best is None else {"best": self.path_of(best)})
        for name, folder in wanted.items():
            with naming_failure(self.run / name):
                _link(self.run / name, folder)
        found = self.list_all()
        needed = {*wanted.values(), *(self.path_of(best) for best in map(_best_of, found[:_KEPT]) if best is not None)}
        for old in found[_KEPT:]:
            if old not in needed:
                (old / DONE).unlink()  # first it is no checkpoint any more
                remove(old)


def _best_of(checkpoint: Path) -> int | None:
    """The update that was the best when it was written: the best again, if the run must go on from here."""
    try:
        best = conform_known(read_json(checkpoint / DONE, dict[str, Any]), Progress).best
    except LrpeError:
        return None  # damaged, which is told when it is needed
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
