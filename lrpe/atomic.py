"""Atomic writes: files and folders are written under a temporary name, synced, then renamed."""

import errno
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from lrpe.errors import LrpeError

_DAY = 24 * 3600  # seconds; a temporary file untouched for a day was left by a killed process
_WAYS_OUT = {
    errno.EACCES: "make it writable or name another place",
    errno.EPERM: "make it writable or name another place",
    errno.EROFS: "name another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EISDIR: "move away what lies there or name another place",
    errno.ENOTDIR: "move away what lies there or name another place",
    errno.ENOTEMPTY: "move away what lies there or name another place",
    errno.EEXIST: "move away what lies there or name another place",
}


def write_atomically(file: Path, content: str | bytes) -> None:
    """Write a file so that readers see the old content or the new, even after a crash or a power cut.

    Missing parent folders are created.

    Raises:
        LrpeError: the file cannot be written, for example because the disk is full.
    """
    temporary = temporary_name(file)
    with naming_failure(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(file)
        try:
            with temporary.open("xb") as stream:  # exclusive creation never follows a planted link
                stream.write(content.encode(errors="replace") if isinstance(content, str) else content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to ``folder`` at the end; ``folder`` must be absent or empty."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(folder)
    temporary = temporary_name(folder)
    temporary.mkdir()
    try:
        yield temporary
        sync_folder(temporary)
        if folder.is_dir():
            folder.rmdir()
        temporary.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def naming_failure(path: Path, *kinds: type[Exception]) -> Iterator[None]:
    """Turn a failed write into an ``LrpeError`` that names the file, the reason and the way out.

    Args:
        path: the file or folder to name.
        kinds: exceptions that libraries raise instead of OSError, such as safetensors' SafetensorError.
    """
    try:
        yield
    except (OSError, *kinds) as error:
        reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).strip().rstrip(".")
        way_out = _WAYS_OUT.get(getattr(error, "errno", None) or 0, "make room")
        raise LrpeError(
            f"{path} could not be written: {reason}. What was saved before is kept: {way_out}, and run the same "
            "command to resume."
        ) from error


def temporary_name(path: Path) -> Path:
    """Return a hidden name beside the path, random so that no other user can put a link there first."""
    return path.with_name(f".{path.name}.{token_hex(8)}.tmp")


def _remove_stale(path: Path) -> None:
    """Remove temporary files of this path that killed processes left behind."""
    ours = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]+\.tmp")
    for left in path.parent.glob(".*.tmp"):
        if ours.fullmatch(left.name) and time.time() - _last_written(left) > _DAY:
            remove(left)


def _last_written(path: Path) -> float:
    parts = (path, *path.rglob("*")) if path.is_dir() and not path.is_symlink() else (path,)
    return max(part.lstat().st_mtime for part in parts)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until a folder and everything in it is on the disk."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


def sync(path: Path) -> None:
    """Wait until a file, or the directory entry of a folder, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
