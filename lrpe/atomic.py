"""Files and folders that are whole or absent: written under a temporary name, then renamed."""

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

_DAY = 24 * 3600  # seconds: a temporary that nobody has written to for so long belongs to a process that was killed
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
    """Write a file of which no reader meets half; a writer that is stopped, or a power cut, leaves the one before.

    The folder that it is in is made if it is not there.

    Raises:
        LrpeError: if the file cannot be written, as on a full disk.
    """
    temporary = temporary_name(file)
    with naming_failure(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(file)
        try:
            with temporary.open("xb") as stream:  # exclusive: it follows no link that somebody planted
                stream.write(content.encode(errors="replace") if isinstance(content, str) else content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Give a folder to fill, which takes its name at the end; ``folder`` must not exist yet, or be empty."""
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
    """Turn a failure to write into an ``LrpeError`` that names the file, the reason and the way out.

    ``kinds`` are exceptions that libraries raise in place of OSError, such as safetensors' SafetensorError.
    """
    try:
        yield
    except (OSError, *kinds) as error:
        reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).strip().rstrip(".")
        way_out = _WAYS_OUT.get(getattr(error, "errno", None) or 0, "make room")
        raise LrpeError(
            f"{path} could not be written: {reason}. What was saved before is kept: {way_out}, and the same command "
            "goes on."
        ) from error


def temporary_name(path: Path) -> Path:
    """Return a hidden name beside the path that nobody can guess, and so nobody can have put a link at."""
    return path.with_name(f".{path.name}.{token_hex(8)}.tmp")


def _remove_stale(path: Path) -> None:
    """Remove temporaries of this path that were left behind by processes that were killed."""
    ours = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]+\.tmp")
    for left in path.parent.glob(".*.tmp"):
        if ours.fullmatch(left.name) and time.time() - _last_written(left) > _DAY:
            remove(left)


def _last_written(path: Path) -> float:
    parts = (path, *path.rglob("*")) if path.is_dir() and not path.is_symlink() else (path,)
    return max(part.lstat().st_mtime for part in parts)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Wait until a folder and all that is in it are on the disk."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


def sync(path: Path) -> None:
    """Wait until a file, or the list of names of a folder, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
