"""A dataset in words: what there is to know of it, and if it is loaded, its splits and a few samples."""

from typing import Any

from lrpe.data.dataset import Dataset, Draw
from lrpe.data.entry import Entry


def described(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "summary": entry.summary,
        "licence": entry.licence,
        "source": entry.source,
        "layout": entry.layout or f"none: it is {'made here' if entry.embedded else 'of the hub alone'}",
        "from": entry.ways,
    }


def contents(loaded: Dataset, samples: int) -> dict[str, Any]:
    splits = {
        name: {
            "samples": len(split),
            "first": [loaded.show(split.sample(Draw(i))) for i in range(min(samples, len(split)))],
        }
        for name, split in loaded.splits.items()
    }
    return {"facts": loaded.facts, "splits": splits}


def as_text(found: dict[str, Any]) -> str:
    lines = [f"{key:8} {found[key]}" for key in ("name", "kind", "summary", "licence", "source", "layout")]
    lines += [f"{key}: {value}" for key, value in found.get("facts", {}).items()]
    for name, split in found.get("splits", {}).items():
        lines += ["", f"{name}: {split['samples']:,} samples", *(f"  {shortened(text)}" for text in split["first"])]
    if "splits" not in found:
        ways = " or ".join(way.replace("--path", "--path DIR") for way in found["from"])
        lines += ["", f"It is not loaded. Say from where: lrpe data show {found['name']} {ways}."]
    return "\n".join(lines)


def shortened(text: str, width: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 1]}…"
