"""``lrpe data``: list, show and prepare the datasets."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from lrpe.errors import require
from lrpe.lab.aligned import in_columns
from lrpe.lab.cli.words import one, pairs, parse_options
from lrpe.schema import Range

if TYPE_CHECKING:
    from lrpe.lab.data.dataset import Dataset


@dataclass(frozen=True)
class DataList:
    """List every dataset, what it is and where it comes from.

    Attributes:
        json: print JSON instead of a table.
    """

    needs: ClassVar[tuple[str, ...]] = ("data",)
    json: bool = False

    def run(self) -> int:
        from lrpe.lab.data.catalog import CATALOG, describe

        if self.json:
            print(json.dumps([describe(entry) for entry in CATALOG.values()], indent=2, ensure_ascii=False))
            return 0
        rows = [[e.name, e.kind, " or ".join(e.ways), e.summary] for e in CATALOG.values()]
        print(in_columns(["name", "kind", "from", "what it is"], rows, left=4))
        return 0


@dataclass(frozen=True)
class DataShow:
    """Show a dataset: its source, licence, splits, a few samples and the hash of its source files.

    Splits, samples and hashes need the data: pass --path or --hub unless every machine has it.

    Attributes:
        name: name of the dataset; see lrpe data list.
        path: folder or file with the dataset in its official layout.
        hub: read it from the Hugging Face hub instead, if the hub has it.
        options: options of its loader, such as tokenizer=bpe:8192,length=256 or repository=owner/name.
        samples: number of samples to show per split.
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
        from lrpe.lab.data.catalog import describe, describe_contents, find, format_description

        entry = find(one(self.name, "data show", "dataset"))
        there = entry.embedded or self.path is not None or self.hub
        require(
            there or not self.options, f"--options needs a dataset to load; pass --path PATH or --hub for {entry.name}."
        )
        loaded = _load_with(entry.name, self.path, self.hub, self.options) if there else None
        description = describe(entry) | ({} if loaded is None else describe_contents(loaded, self.samples))
        print(json.dumps(description, indent=2, ensure_ascii=False) if self.json else format_description(description))
        return 0


@dataclass(frozen=True)
class DataPrepare:
    """Read, generate or tokenise a dataset into the cache (LRPE_CACHE, or lrpe in the user's cache folder).

    Attributes:
        name: name of the dataset; see lrpe data list.
        path: folder or file with the dataset in its official layout.
        hub: read it from the Hugging Face hub instead, if the hub has it.
        options: options of its loader, such as tokenizer=bpe:8192,length=256 or repository=owner/name.
    """

    needs: ClassVar[tuple[str, ...]] = ("data",)
    name: list[str] = field(default_factory=list, metadata={"words": "NAME"})
    path: Path | None = None
    hub: bool = False
    options: str = ""

    def run(self) -> int:
        loaded = _load_with(one(self.name, "data prepare", "dataset"), self.path, self.hub, self.options)
        sizes = ", ".join(f"{name} {len(split):,}" for name, split in loaded.splits.items())
        print(f"{loaded.name} is ready: {sizes} samples.")
        return 0


def _load_with(name: str, path: Path | None, hub: bool, options: str) -> "Dataset":
    """Load a dataset with options written as name=value,name=value."""
    from lrpe.lab.data.catalog import find_loader, load

    texts = pairs(options, "--options must be name=value")
    loader, arguments = find_loader(name, path, hub)
    return load(name, path, hub, **parse_options(loader, name, texts, positional=len(arguments)))
