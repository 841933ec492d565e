"""``lrpe data``: what there is to learn from, how it looks, and making it ready."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from lrpe.errors import require
from lrpe.lab.aligned import in_columns
from lrpe.lab.cli.words import one, pairs
from lrpe.schema import Range

if TYPE_CHECKING:
    from lrpe.lab.data.dataset import Dataset


@dataclass(frozen=True)
class DataList:
    """List every dataset: what it is, and whether this machine has it already.

    Attributes:
        json: print JSON instead of a table.
    """

    needs: ClassVar[tuple[str, ...]] = ("data",)
    json: bool = False

    def run(self) -> int:
        from lrpe.lab.data.catalog import CATALOG
        from lrpe.lab.data.show import describe

        if self.json:
            print(json.dumps([describe(entry) for entry in CATALOG.values()], indent=2, ensure_ascii=False))
            return 0
        rows = [[e.name, e.kind, " or ".join(e.ways), e.summary] for e in CATALOG.values()]
        print(in_columns(["name", "kind", "from", "what it is"], rows, left=4))
        return 0


@dataclass(frozen=True)
class DataShow:
    """Show a dataset: where to get it, its licence, its splits, a few samples, the hash of its sources.

    Of one that is not on every machine it tells what there is to tell, until it is given a path or told to ask the hub.

    Attributes:
        name: of the dataset; see lrpe data list.
        path: the folder or file with its official layout.
        hub: read it from the Hugging Face hub instead, if it is there.
        options: of its loader, such as tokenizer=bpe:8192,length=256 or repository=owner/name.
        samples: how many samples of each split to show.
        json: print JSON instead of text.
    """

    needs: ClassVar[tuple[str, ...]] = ("data",)
    name: list[str] = field(default_factory=list, metadata={"words": "NAME"})
    path: Path | None = None
    hub: bool = False
    options: str = ""
    samples: Annotated[int, Range(0, 1000)] = 2
    json: bool = False

    def run(self) -> int:
        from lrpe.lab.data.catalog import find
        from lrpe.lab.data.show import describe, describe_contents, format_description

        entry = find(one(self.name, "data show", "dataset"))
        there = entry.embedded or self.path is not None or self.hub
        require(there or not self.options, f"Options are for loading, and {entry.name} is not loaded: say from where.")
        loaded = load_with(entry.name, self.path, self.hub, self.options) if there else None
        found = describe(entry) | ({} if loaded is None else describe_contents(loaded, self.samples))
        print(json.dumps(found, indent=2, ensure_ascii=False) if self.json else format_description(found))
        return 0


@dataclass(frozen=True)
class DataPrepare:
    """Read, generate or tokenise a dataset once, into the cache (LRPE_CACHE, or lrpe in the user's cache folder).

    Attributes:
        name: of the dataset; see lrpe data list.
        path: the folder or file with its official layout.
        hub: read it from the Hugging Face hub instead, if it is there.
        options: of its loader, such as tokenizer=bpe:8192,length=256 or repository=owner/name.
    """

    needs: ClassVar[tuple[str, ...]] = ("data",)
    name: list[str] = field(default_factory=list, metadata={"words": "NAME"})
    path: Path | None = None
    hub: bool = False
    options: str = ""

    def run(self) -> int:
        loaded = load_with(one(self.name, "data prepare", "dataset"), self.path, self.hub, self.options)
        sizes = ", ".join(f"{name} {len(split):,}" for name, split in loaded.splits.items())
        print(f"{loaded.name} is ready: {sizes} samples.")
        return 0


def load_with(name: str, path: Path | None, hub: bool, options: str) -> "Dataset":
    """Load a dataset with options written as name=value,name=value."""
    from lrpe.lab.data.catalog import load, read_options

    words = pairs(options, "Options are name=value")
    return load(name, path, hub, **read_options(name, path, hub, words))
