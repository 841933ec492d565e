"""The cache of prepared data: built once, atomically, by one process while others wait, and checked when read.

Each folder has a manifest with the size and the hash of every file. Sizes are compared on every use; hashes once per
process, and again when a file's modification time has changed. Hashing reads 1.7 GB per second: a quarter of a second
for WikiText-103. A folder damaged by a power cut or a full disk is built again.
"""

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from lrpe.atomic import atomic_folder
from lrpe.errors import LrpeError
from lrpe.lab.caches import cache_folder
from lrpe.serialization import read_json

_MANIFEST = "manifest.json"
_SECONDS = 30.0  # between two lines of a waiting process
_verified: set[tuple[str, int, int, str]] = (
    set()
)  # path, size, time and hash of the files that this process has checked


def prepare(name: str, recipe: dict[str, Any], build: Callable[[Path], None]) -> Path:
    """Return the folder that ``build`` fills for this recipe: built on the first call, reused afterwards.

    The folder is built under a temporary name and then renamed, so a killed process leaves no partial folder. A lock
    keeps two processes from building the same folder. A damaged folder is built again.

    Args:
        name: what is prepared; the prefix of the folder's name.
        recipe: everything the result depends on, JSON-friendly: the hash of the sources, sizes, seeds, and a version of
            the code that builds it.
        build: fills the folder it is given.

    Raises:
        LrpeError: the cache cannot be read or written.
    """
    folder = cache_folder() / f"{name}-{digest(recipe)[:16]}"
    try:
        if _damage(folder) is None:
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with waiting_lock(folder.with_name(f".{folder.name}.lock"), name):
            damage = _damage(folder)  # another process may have built it by now
            if damage is not None:
                _build_whole(folder, recipe, build, damage)
    except OSError as error:
        raise LrpeError(
            f"Prepared data cannot be kept in {str(folder.parent)!r}: {error.strerror or error}. Set LRPE_CACHE to "
            "another folder."
        ) from error
    return folder


def content_hash(folder: Path) -> str:
    """Return a hash of all files in a prepared folder."""
    return digest(read_json(folder / _MANIFEST, dict)["files"])


def digest(recipe: Any) -> str:
    """Return a hash of JSON-friendly values."""
    return sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()


def hash_files(*files: Path) -> str:
    """Return a hash of the contents of files, in this order.

    Raises:
        LrpeError: a file cannot be read.
    """
    hasher = sha256()
    for file in files:
        try:
            with file.open("rb") as stream:
                while block := stream.read(1 << 20):
                    hasher.update(block)
        except OSError as error:
            raise LrpeError(f"{str(file)!r} cannot be read: {error.strerror or error}.") from error
    return hasher.hexdigest()


def _build_whole(folder: Path, recipe: dict[str, Any], build: Callable[[Path], None], damage: str) -> None:
    if folder.exists():
        print(f"{folder.name}: {damage}; preparing it again.", file=sys.stderr, flush=True)
    for left in folder.parent.glob(f".{folder.name}.*.tmp"):  # left by a killed process: we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    with atomic_folder(folder) as temporary:
        build(temporary)
        files = sorted(path for path in temporary.rglob("*") if path.is_file())
        manifest = {"recipe": recipe, "files": {str(file.relative_to(temporary)): _entry(file) for file in files}}
        (temporary / _MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # the damaged folder, now that its replacement is complete


def _entry(file: Path) -> dict[str, Any]:
    return {"size": file.stat().st_size, "sha256": hash_files(file)}


def _damage(folder: Path) -> str | None:
    """Return what is wrong with a prepared folder, or None if it is intact."""
    try:
        files = read_json(folder / _MANIFEST, dict)["files"]
        broken = [name for name, entry in files.items() if not _is_whole(folder / name, entry["size"], entry["sha256"])]
    except (LrpeError, KeyError, TypeError, AttributeError):
        return f"its {_MANIFEST} cannot be read"
    return f"{broken[0]} is not what was written" if broken else None


def _is_whole(file: Path, size: int, expected: str) -> bool:
    try:
        state = file.stat()
        seen = (str(file), state.st_size, state.st_mtime_ns, expected)
        whole = state.st_size == size and (seen in _verified or hash_files(file) == expected)
    except (OSError, LrpeError):
        return False
    if whole:
        _verified.add(seen)
    return whole


@contextmanager
def waiting_lock(file: Path, what: str) -> Iterator[None]:
    """Hold a lock between processes; while waiting for it, report who holds it and for how long.

    A file beside the lock names the holder as long as the lock is held. The operating system frees the lock of a killed
    process.

    Args:
        file: the lock.
        what: what the holder prepares, for the report.
    """
    lock, holder = FileLock(file), file.with_suffix(".holder")
    _acquire(lock, holder, what)
    try:
        holder.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _acquire(lock: FileLock, holder: Path, what: str) -> None:
    wait = 0.5  # a shorter wait is not worth a line
    while True:
        try:
            lock.acquire(timeout=wait)
            return
        except Timeout:
            print(f"Waiting for {_describe(holder)}, which prepares {what} ...", file=sys.stderr, flush=True)
            wait = _SECONDS


def _describe(holder: Path) -> str:
    try:
        record = read_json(holder, dict)
        minutes, seconds = divmod(int(time.time() - record["since"]), 60)
        return f"process {record['pid']} on {record['host']}, for {minutes} min {seconds} s"
    except (LrpeError, KeyError, TypeError):  # the holder has only just started or ended
        return "another process"
