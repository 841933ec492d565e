"""Describe a dataset in words: its entry, and once loaded its facts, its splits and a few samples."""

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
