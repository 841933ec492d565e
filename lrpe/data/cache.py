"""Where prepared data lives: made once, whole or not at all, by one process while the others wait."""

import json
import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from filelock import FileLock

from lrpe.errors import LrpeError
from lrpe.whole import whole_folder


def cache_folder() -> Path:
    """$LRPE_CACHE, or lrpe in the user's cache folder."""
    given = os.environ.get("LRPE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(given) if given else (Path(base) if base else Path.home() / ".cache") / "lrpe"


def prepared(name: str, recipe: dict[str, Any], build: Callable[[Path], None]) -> Path:
    """The folder that ``build`` fills for this recipe: built on the first call, found on all others.

    A recipe is all that the result depends on, JSON-friendly: the hash of the sources, sizes, seeds, a version of the
    code that builds. The folder is built under a temporary name and then renamed, so that a process that is killed
    leaves no half of it; a lock makes two processes that ask at once build one.
    """
    folder = cache_folder() / f"{name}-{digest(recipe)[:16]}"
    if (folder / "recipe.json").is_file():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if not (folder / "recipe.json").is_file():
                build_whole(folder, recipe, build)
    except OSError as error:
        raise LrpeError(
            f"Prepared data is kept in {str(folder.parent)!r}, which failed: {error}. LRPE_CACHE names another folder."
        ) from error
    return folder


def build_whole(folder: Path, recipe: dict[str, Any], build: Callable[[Path], None]) -> None:
    for left in folder.parent.glob(f".{folder.name}.*.tmp"):  # of a process that was killed: we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    with whole_folder(folder) as temporary:
        build(temporary)
        (temporary / "recipe.json").write_text(json.dumps(recipe, indent=2, sort_keys=True), encoding="utf-8")


def digest(recipe: Any) -> str:
    """A hash of JSON-friendly values."""
    return sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()


def hash_files(*files: Path) -> str:
    """A hash of the contents of files, in their order."""
    found = sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                found.update(block)
    return found.hexdigest()
