"""Every dataset by name."""

from pathlib import Path
from typing import Any

from lrpe.data.arena import ENTRIES as ARENA
from lrpe.data.dataset import Dataset
from lrpe.data.digits import ENTRIES as DIGITS
from lrpe.data.embedded_glue import ENTRIES as EMBEDDED_GLUE
from lrpe.data.entry import Entry
from lrpe.data.glue import ENTRIES as GLUE
from lrpe.data.hub import ENTRIES as HUB
from lrpe.data.images import ENTRIES as IMAGES
from lrpe.data.text import ENTRIES as TEXT
from lrpe.data.wikitext import ENTRIES as WIKITEXT
from lrpe.errors import LrpeError, require, unknown_name

ENTRIES: tuple[Entry, ...] = (*WIKITEXT, *TEXT, *HUB, *GLUE, *EMBEDDED_GLUE, *ARENA, *IMAGES, *DIGITS)
CATALOG: dict[str, Entry] = {entry.name: entry for entry in ENTRIES}


def load(name: str, path: Path | None = None, hub: bool = False, **options: Any) -> Dataset:
    """The dataset of that name: from its files, from the Hugging Face hub if it is there, or made on the spot."""
    entry = find(name)
    if hub:
        if entry.hub is None:
            known = [other.name for other in CATALOG.values() if other.hub is not None]
            raise LrpeError(f"{name} is not read from the hub; these are: {', '.join(known) or 'none'}.")
        return entry.hub(**options)
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
