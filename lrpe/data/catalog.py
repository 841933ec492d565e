"""Every dataset by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lrpe.data.arena.entries import ENTRIES as ARENA
from lrpe.data.dataset import Dataset
from lrpe.data.entry import Entry
from lrpe.data.glue.glue import ENTRIES as GLUE
from lrpe.data.glue.stand_ins import ENTRIES as EMBEDDED_GLUE
from lrpe.data.images.class_folders import ENTRIES as IMAGES
from lrpe.data.images.digits import ENTRIES as DIGITS
from lrpe.data.text.hub import ENTRIES as HUB
from lrpe.data.text.sources import ENTRIES as TEXT
from lrpe.data.text.wikitext import ENTRIES as WIKITEXT
from lrpe.errors import LrpeError, check_options, require, unknown_name

ENTRIES: tuple[Entry, ...] = (*WIKITEXT, *TEXT, *HUB, *GLUE, *EMBEDDED_GLUE, *ARENA, *IMAGES, *DIGITS)
CATALOG: dict[str, Entry] = {entry.name: entry for entry in ENTRIES}


def load(name: str, path: Path | None = None, hub: bool = False, **options: Any) -> Dataset:
    """The dataset of that name: from its files, from the Hugging Face hub if it is there, or made on the spot."""
    entry = find(name)
    if hub:
        if entry.hub is None:
            known = [other.name for other in CATALOG.values() if other.hub is not None]
            raise LrpeError(f"{name} is not read from the hub; these are: {', '.join(known) or 'none'}.")
        return call(entry.hub, name, **options)
    if entry.load is None:
        raise LrpeError(f"{name} is of the hub alone, which is asked only if you say so: hub=True, or --hub.")
    require(
        entry.embedded or path is not None,
        f"{name} is not on every machine: get it from {entry.source}, and name its path. Layout: {entry.layout}",
    )
    require(path is None or not entry.embedded, f"{name} is made here and reads no files; got path={str(path)!r}.")
    require(path is None or path.exists(), f"{name} is read from {str(path)!r}, which does not exist.")
    return call(entry.load, name, **options) if entry.embedded else call(entry.load, name, path, **options)


def call(loader: Callable[..., Dataset], name: str, *arguments: Any, **options: Any) -> Dataset:
    check_options(loader, name, *arguments, **options)
    return loader(*arguments, **options)


def find(name: str) -> Entry:
    if name not in CATALOG:
        raise unknown_name("dataset", name, CATALOG)
    return CATALOG[name]
