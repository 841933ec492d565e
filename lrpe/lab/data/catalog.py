"""All datasets by name."""

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
    """Return the dataset of this name.

    Args:
        name: its name in ``CATALOG``.
        path: where its files are; None for datasets that need none.
        hub: whether to read it from the Hugging Face hub.
        options: the options of its loader.

    Raises:
        LrpeError: the name, the path or an option is wrong; the message says how to get the data.
    """
    loader, arguments = _find_loader(name, path, hub)
    return loader(*arguments, **conform_options(loader, name, options, given=len(arguments)))


def read_options(name: str, path: Path | None, hub: bool, words: Mapping[str, str]) -> dict[str, Any]:
    """Convert options written as text to the types that the dataset's loader declares."""
    loader, arguments = _find_loader(name, path, hub)
    return parse_options(loader, name, words, given=len(arguments))


def check_options(name: str, hub: bool, options: Mapping[str, Any]) -> None:
    """Raise ``LrpeError`` unless the dataset accepts these options; its files are not needed."""
    entry = find(name)
    loader = entry.hub if hub else entry.load
    if loader is not None:
        conform_options(loader, name, options, given=0 if hub or entry.embedded else 1)


def _find_loader(name: str, path: Path | None, hub: bool) -> tuple[Callable[..., Dataset], tuple[Path, ...]]:
    """Return the function that loads a dataset, and its arguments other than options."""
    entry = find(name)
    if hub:
        if entry.hub is None:
            known = [other.name for other in CATALOG.values() if other.hub is not None]
            raise LrpeError(f"{name} cannot be read from the hub; these can: {', '.join(known) or 'none'}.")
        return entry.hub, ()
    if entry.load is None:
        raise LrpeError(
            f"{name} is available only from the hub, which is used only on request: pass hub=True, or --hub."
        )
    if path is None:
        require(
            entry.embedded,
            f"{name} needs files: get them from {entry.source} and pass their path. Layout: {entry.layout}",
        )
        return entry.load, ()
    require(not entry.embedded, f"{name} reads no files, so leave path out; got path={str(path)!r}.")
    require(os.path.exists(path), f"The path of {name} does not exist; got path={str(path)!r}.")
    return entry.load, (path,)


def find(name: str) -> Entry:
    if name not in CATALOG:
        raise unknown_name("dataset", name, CATALOG)
    return CATALOG[name]
