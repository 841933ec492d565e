"""Files and folders that are whole or absent: written under a temporary name, then renamed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """No reader meets half of the file, and a writer that is stopped, or a power cut, leaves the one that was there."""
    temporary = temporary_name(file)
    try:
        temporary.write_text(text, encoding="utf-8")
        sync(temporary)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which takes its name at the end; ``folder`` is not there before, or empty."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(folder)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        if folder.is_dir():
            folder.rmdir()
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def temporary_name(path: Path) -> Path:
    """A hidden name beside it, of this process alone."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def sync(path: Path) -> None:
    """Wait until a file, or the list of names of a folder, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
