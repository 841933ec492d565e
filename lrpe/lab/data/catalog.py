"""Every dataset by name."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lrpe.errors import LrpeError, require, unknown_name
from lrpe.lab.data.arena.image import ENTRIES as LRA_IMAGE
from lrpe.lab.data.arena.listops import ENTRIES as LISTOPS
from lrpe.lab.data.arena.pathfinder import ENTRIES as PATHFINDER
from lrpe.lab.data.arena.retrieval import ENTRIES as RETRIEVAL
from lrpe.lab.data.arena.text import ENTRIES as LRA_TEXT
from lrpe.lab.data.dataset import Dataset, Entry
from lrpe.lab.data.glue.official import ENTRIES as GLUE
from lrpe.lab.data.glue.stand_ins import ENTRIES as EMBEDDED_GLUE
from lrpe.lab.data.images.class_folders import ENTRIES as IMAGES
from lrpe.lab.data.images.digits import ENTRIES as DIGITS
from lrpe.lab.data.text.corpora import ENTRIES as CORPORA
from lrpe.lab.data.text.hub import ENTRIES as HUB
from lrpe.lab.data.text.wikitext import ENTRIES as WIKITEXT
from lrpe.lab.options import conform_options, parse_options

_ENTRIES: tuple[Entry, ...] = (
    *(*WIKITEXT, *CORPORA, *HUB, *GLUE, *EMBEDDED_GLUE),
    *(*LISTOPS, *PATHFINDER, *LRA_TEXT, *RETRIEVAL, *LRA_IMAGE),
    *(*IMAGES, *DIGITS),
)
CATALOG: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def load(name: str, path: Path | None = None, hub: bool = False, **options: Any) -> Dataset:
    """The dataset of that name: from its files, from the Hugging Face hub if it is there, or made on the spot."""
    loader, arguments = _find_loader(name, path, hub)
    return loader(*arguments, **conform_options(loader, name, options, given=len(arguments)))


def read_options(name: str, path: Path | None, hub: bool, words: Mapping[str, str]) -> dict[str, Any]:
    """Options of a dataset's loader that were written as text, each as the loader declares it."""
    loader, arguments = _find_loader(name, path, hub)
    return parse_options(loader, name, words, given=len(arguments))


def check_options(name: str, hub: bool, options: Mapping[str, Any]) -> None:
    """Raise ``LrpeError`` unless the dataset takes these options, wherever its files are."""
    entry = find(name)
    loader = entry.hub if hub else entry.load
    if loader is not None:
        conform_options(loader, name, options, given=0 if hub or entry.embedded else 1)


def _find_loader(name: str, path: Path | None, hub: bool) -> tuple[Callable[..., Dataset], tuple[Path, ...]]:
    """The function that loads a dataset from where it is, and what it takes beside options."""
    entry = find(name)
    if hub:
        if entry.hub is None:
            known = [other.name for other in CATALOG.values() if other.hub is not None]
            raise LrpeError(f"{name} is not read from the hub; these are: {', '.join(known) or 'none'}.")
        return entry.hub, ()
    if entry.load is None:
        raise LrpeError(f"{name} is of the hub alone, which is asked only if you say so: hub=True, or --hub.")
    if path is None:
        require(
            entry.embedded,
            f"{name} is not on every machine: get it from {entry.source}, and name its path. Layout: {entry.layout}",
        )
        return entry.load, ()
    require(not entry.embedded, f"{name} is made here and reads no files; got path={str(path)!r}.")
    require(os.path.exists(path), f"{name} is read from {str(path)!r}, which does not exist.")
    return entry.load, (path,)


def find(name: str) -> Entry:
    if name not in CATALOG:
        raise unknown_name("dataset", name, CATALOG)
    return CATALOG[name]
