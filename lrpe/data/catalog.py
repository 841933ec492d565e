"""Every dataset by name."""

from pathlib import Path
from typing import Any

from lrpe.data.dataset import Dataset
from lrpe.data.digits import ENTRIES as DIGITS
from lrpe.data.entry import Entry
from lrpe.data.images import ENTRIES as IMAGES
from lrpe.errors import require, unknown_name

ENTRIES: tuple[Entry, ...] = (*IMAGES, *DIGITS)
CATALOG: dict[str, Entry] = {entry.name: entry for entry in ENTRIES}


def load(name: str, path: Path | None = None, **options: Any) -> Dataset:
    """The dataset of that name, from its files if it has any."""
    entry = find(name)
    require(
        entry.embedded or path is not None,
        f"{name} is not on every machine: get it from {entry.source}, and name its path. Layout: {entry.layout}",
    )
    require(path is None or not entry.embedded, f"{name} is made here and reads no files; got path={str(path)!r}.")
    require(path is None or path.exists(), f"{name} is read from {str(path)!r}, which does not exist.")
    return entry.load(**options) if entry.embedded else entry.load(path, **options)


def find(name: str) -> Entry:
    if name not in CATALOG:
        raise unknown_name("dataset", name, CATALOG)
    return CATALOG[name]
