"""The checkpoints of a run: which to go on from, which to keep, and links to the last and the best."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from lrpe.errors import LrpeError
from lrpe.training.checkpoint import DONE, read_progress
from lrpe.training.writing import naming_failure
from lrpe.whole import temporary_name

KEPT = 2  # beside the best


class History:
    """Folders step-N of checkpoints. Only one process may change them."""

    def __init__(self, folder: Path):
        self.run, self.folder = folder, folder / "checkpoints"
        self.damaged: list[str] = []  # what was passed over, and why

    def place(self, update: int) -> Path:
        return self.folder / f"step-{update:08d}"

    def found(self) -> list[Path]:
        """From the newest on."""
        return sorted((path.parent for path in self.folder.glob(f"step-*/{DONE}")), reverse=True)

    def newest(self) -> dict[str, Any] | None:
        """How far the newest checkpoint is that is whole; damaged ones are put aside, and told of in ``damaged``."""
        self.sweep()
        for folder in self.found():
            try:
                return read_progress(folder)
            except LrpeError as error:
                self.damaged.append(str(error))
                aside = folder.with_name(f"damaged-{folder.name}")
                shutil.rmtree(aside, ignore_errors=True)
                folder.rename(aside)
        return None

    def sweep(self) -> None:
        """Remove what a process that was killed had begun to write, or to remove."""
        begun = [path for path in self.folder.glob("step-*") if not (path / DONE).exists()]
        for path in (*begun, *self.folder.glob(".step-*.tmp")):
            shutil.rmtree(path, ignore_errors=True)

    def mark(self, last: int, best: int | None) -> None:
        """``last`` and ``best`` lead to these updates' checkpoints; others that are not needed are removed."""
        wanted = {"last": self.place(last)} | ({} if best is None else {"best": self.place(best)})
        for name, folder in wanted.items():
            with naming_failure(self.run / name):
                link(self.run / name, folder)
        found = self.found()
        needed = {*wanted.values(), *(self.place(best) for best in map(best_of, found[:KEPT]) if best is not None)}
        for old in found[KEPT:]:
            if old not in needed:
                (old / DONE).unlink()  # first it is no checkpoint any more
                shutil.rmtree(old, ignore_errors=True)


def best_of(checkpoint: Path) -> int | None:
    """The update that was the best when it was written: the best again, if the run must go on from here."""
    try:
        best = json.loads((checkpoint / DONE).read_text(encoding="utf-8")).get("best")
    except (OSError, ValueError):
        return None  # damaged, which is told when it is needed
    return None if best is None else best[0]


def link(name: Path, target: Path) -> None:
    temporary = temporary_name(name)
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(target, name.parent))
    temporary.replace(name)
