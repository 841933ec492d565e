"""All datasets by name: loading them, and describing them in words."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lrpe.errors import LrpeError, require, unknown_name
from lrpe.lab.aligned import in_columns
from lrpe.lab.data.arena.image import ENTRIES as LRA_IMAGE
from lrpe.lab.data.arena.listops import ENTRIES as LISTOPS
from lrpe.lab.data.arena.pathfinder import ENTRIES as PATHFINDER
from lrpe.lab.data.arena.retrieval import ENTRIES as RETRIEVAL
from lrpe.lab.data.arena.text import ENTRIES as LRA_TEXT
from lrpe.lab.data.dataset import Dataset, Draw, Entry
from lrpe.lab.data.glue.official import ENTRIES as GLUE
from lrpe.lab.data.glue.stand_ins import ENTRIES as EMBEDDED_GLUE
from lrpe.lab.data.images.cifar import ENTRIES as CIFAR
from lrpe.lab.data.images.class_folders import ENTRIES as IMAGES
from lrpe.lab.data.images.digits import ENTRIES as DIGITS
from lrpe.lab.data.probes.position import ENTRIES as POSITION_PROBES
from lrpe.lab.data.probes.recall import ENTRIES as RECALL_PROBES
from lrpe.lab.data.probes.state import ENTRIES as STATE_PROBES
from lrpe.lab.data.text.corpora import ENTRIES as CORPORA
from lrpe.lab.data.text.hub import ENTRIES as HUB
from lrpe.schema import conform_options

_ENTRIES: tuple[Entry, ...] = (
    *(*CORPORA, *HUB, *GLUE, *EMBEDDED_GLUE),
    *(*LISTOPS, *PATHFINDER, *LRA_TEXT, *RETRIEVAL, *LRA_IMAGE),
    *(*IMAGES, *CIFAR, *DIGITS),
    *(*STATE_PROBES, *POSITION_PROBES, *RECALL_PROBES),
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
    loader, arguments = find_loader(name, path, hub)
    return loader(*arguments, **conform_options(loader, name, options, positional=len(arguments)))


def check_options(name: str, hub: bool, options: Mapping[str, Any]) -> None:
    """Raise ``LrpeError`` unless the dataset accepts these options; its files are not needed."""
    entry = find(name)
    loader = entry.hub if hub else entry.load
    if loader is not None:
        conform_options(loader, name, options, positional=0 if hub or entry.embedded else 1)


def find_loader(name: str, path: Path | None, hub: bool) -> tuple[Callable[..., Dataset], tuple[Path, ...]]:
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


def split_source(source: str) -> tuple[str | None, str]:
    """Return the dataset that a source names, if it names one, and its path.

    >>> split_source("citations:papers/acl"), split_source("papers/acl"), split_source("hub")
    (('citations', 'papers/acl'), (None, 'papers/acl'), (None, 'hub'))
    """
    name, colon, path = source.partition(":")
    return (name, path) if colon and name in CATALOG else (None, source)


def describe(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "summary": entry.summary,
        "licence": entry.licence,
        "source": entry.source,
        "layout": entry.layout or f"none: it is {'built in' if entry.embedded else 'only on the hub'}",
        "from": entry.ways,
    }


def describe_contents(loaded: Dataset, samples: int) -> dict[str, Any]:
    splits = {
        name: {
            "samples": len(split),
            "first": [loaded.show(split.sample(Draw(i))) for i in range(min(samples, len(split)))],
        }
        for name, split in loaded.splits.items()
    }
    return {"facts": loaded.facts, "splits": splits}


def format_description(description: dict[str, Any]) -> str:
    """Return ``describe(entry)``, joined with ``describe_contents`` if loaded, as text with a table of the splits."""
    about = {key: description[key] for key in ("name", "kind", "summary", "licence", "source", "layout")}
    splits = description.get("splits", {})
    facts = {key: value for key, value in description.get("facts", {}).items() if not _is_by_split(value, splits)}
    lines = _align({key: _format_fact(value) for key, value in (about | facts).items()})
    if "splits" not in description:
        ways = " or ".join(way.replace("--path", "--path DIR") for way in description["from"])
        return "\n".join([*lines, "", f"Not loaded. To load it, run: lrpe data show {description['name']} {ways}."])
    lines += ["", _split_table(splits, description["facts"])]
    for name, split in splits.items():
        if split["first"]:
            lines += ["", f"The first of {name}:", *(f"  {_shorten(text)}" for text in split["first"])]
    return "\n".join(lines)


def _is_by_split(value: Any, splits: Mapping[str, Any]) -> bool:
    return isinstance(value, dict) and len(value) > 0 and value.keys() <= splits.keys()


def _align(pairs: Mapping[str, str]) -> list[str]:
    width = max(map(len, pairs))
    return [f"{key.replace('_', ' '):{width}}  {value}" for key, value in pairs.items()]


def _split_table(splits: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Return a table with one row per split: its number of samples, and every fact that is given per split."""
    columns: dict[str, dict[str, Any]] = {"samples": {name: split["samples"] for name, split in splits.items()}}
    for key, value in facts.items():
        if _is_by_split(value, splits):
            inner = {name: each if isinstance(each, dict) else {key: each} for name, each in value.items()}
            for column in dict.fromkeys(column for each in inner.values() for column in each):
                columns[column] = {name: each.get(column) for name, each in inner.items()}
    rows = [[name, *(_format_fact(column.get(name)) for column in columns.values())] for name in splits]
    return in_columns(["split", *columns], rows)


def _format_fact(value: Any) -> str:
    """Format a fact for people: thousands separated, lists as words, hashes shortened."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_format_fact(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_format_fact, value))
    return f"{value[:16]}…" if re.fullmatch("[0-9a-f]{64}", str(value)) else str(value)


def _shorten(text: str, width: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 1]}…"
