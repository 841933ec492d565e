"""Where data is cached: prepared data, and files of the Hugging Face hub."""

import os
from pathlib import Path

from lrpe.errors import LrpeError


def cache_folder() -> Path:
    """Return $LRPE_CACHE, or lrpe in the user's cache folder."""
    for variable, inner in (("LRPE_CACHE", ""), ("XDG_CACHE_HOME", "lrpe")):
        if os.environ.get(variable):
            return Path(os.environ[variable]) / inner
    try:
        return Path.home() / ".cache" / "lrpe"
    except RuntimeError:
        raise LrpeError(
            "Prepared data is kept in the user's home folder, but this user has none: set LRPE_CACHE to a folder."
        ) from None


def hub_folder(kind: str) -> Path:
    """Return where the Hugging Face libraries keep the files of repositories ("hub") or prepared "datasets"."""
    own = os.environ.get({"hub": "HF_HUB_CACHE", "datasets": "HF_DATASETS_CACHE"}[kind])
    if own:
        return Path(own).expanduser()
    home = os.environ.get("HF_HOME")
    if home:
        return Path(home).expanduser() / kind
    caches = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(caches) if caches else Path.home() / ".cache") / "huggingface" / kind
    except RuntimeError:
        raise LrpeError(
            "The hub's files are kept in the user's home folder, but this user has none: set HF_HOME."
        ) from None


def measure_folder(folder: Path) -> tuple[int, int]:
    """Return the bytes and the number of the files in a folder; links, and files that cannot be read, are left out."""
    size = count = 0
    for path, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(path, name)
            try:
                if not os.path.islink(file):
                    size, count = size + os.stat(file).st_size, count + 1
            except OSError:
                continue
    return size, count


def is_writable(folder: Path) -> bool:
    """Return whether files can be written to a folder, or, if it does not exist, whether it can be made."""
    existing = next((path for path in (folder, *folder.absolute().parents) if path.exists()), None)
    return existing is not None and existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
