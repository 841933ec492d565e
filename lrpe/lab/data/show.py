"""A dataset in words: what there is to know of it, and if it is loaded, its splits and a few samples."""

import re
from collections.abc import Mapping
from typing import Any

from lrpe.lab.aligned import in_columns
from lrpe.lab.data.dataset import Dataset, Draw, Entry


def describe(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "summary": entry.summary,
        "licence": entry.licence,
        "source": entry.source,
        "layout": entry.layout or f"none: it is {'made here' if entry.embedded else 'of the hub alone'}",
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


def format_description(found: dict[str, Any]) -> str:
    """Return a dataset in words and a table of its splits; ``found`` is ``described``, and ``contents`` if loaded."""
    about = {key: found[key] for key in ("name", "kind", "summary", "licence", "source", "layout")}
    splits = found.get("splits", {})
    facts = {key: value for key, value in found.get("facts", {}).items() if not _is_by_split(value, splits)}
    lines = _align({key: _format_fact(value) for key, value in (about | facts).items()})
    if "splits" not in found:
        ways = " or ".join(way.replace("--path", "--path DIR") for way in found["from"])
        return "\n".join([*lines, "", f"It is not loaded. Say from where: lrpe data show {found['name']} {ways}."])
    lines += ["", _split_table(splits, found["facts"])]
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
    """Return a row per split: its samples, and every fact that is told by split."""
    columns: dict[str, dict[str, Any]] = {"samples": {name: split["samples"] for name, split in splits.items()}}
    for key, value in facts.items():
        if _is_by_split(value, splits):
            inner = {name: each if isinstance(each, dict) else {key: each} for name, each in value.items()}
            for column in dict.fromkeys(column for each in inner.values() for column in each):
                columns[column] = {name: each.get(column) for name, each in inner.items()}
    rows = [[name, *(_format_fact(column.get(name)) for column in columns.values())] for name in splits]
    return in_columns(["split", *columns], rows)


def _format_fact(value: Any) -> str:
    """Return a fact for people: thousands apart, lists as words, and of a hash the first digits."""
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
