"""A result on the disk: JSON for machines and text for people, whole or not at all."""

import json
import tempfile
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from lrpe.atomic import write_atomically
from lrpe.errors import LrpeError, require
from lrpe.lab.benchmarks.lines import Line, line_table
from lrpe.lab.benchmarks.process import describe_settings
from lrpe.lab.stamp import describe
from lrpe.serialization import read_json


def result_files(path: Path) -> tuple[Path, Path]:
    """PATH.json and PATH.txt; a PATH that ends in one of the two names both."""
    stem = path.with_suffix("") if path.suffix in (".json", ".txt") else path
    return stem.with_name(f"{stem.name}.json"), stem.with_name(f"{stem.name}.txt")


def prepare(path: Path) -> None:
    """Make the folder that ``save`` will write to: better to fail before the measurement than after it."""
    require(path.name not in ("", ".."), f"Results are saved in a file; {str(path)!r} names none.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise LrpeError(f"Results are saved in {str(path.parent)!r}, which cannot be written: {error}.") from None


def save(path: Path, result: dict[str, Any], text: str) -> tuple[Path, Path]:
    """Write both files, each under a temporary name that is then renamed, so that no reader meets half a file."""
    files = result_files(path)
    for file, content in zip(files, (json.dumps(result, indent=2, ensure_ascii=False), text), strict=True):
        write_atomically(file, f"{content}\n")
    return files


def read_result(path: Path) -> dict[str, Any]:
    """What ``save`` wrote as JSON."""
    result = read_json(path, dict[str, Any])
    named = isinstance(result.get("benchmark"), str)
    require(named, f"A result names its benchmark, as --save writes it; {str(path)!r} names none.")
    return result


_TINY = "Quick: the sizes are tiny, so these figures say that it runs and nothing about speed."


@dataclass(frozen=True)
class Measurement(ABC):
    """``settings`` and ``stamp`` say how, where and of what; a quick one is of tiny sizes and is not judged."""

    benchmark: ClassVar[str]
    quick: bool
    rounds: int
    settings: dict[str, Any]
    stamp: dict[str, Any]
    lines: list[Line]

    @abstractmethod
    def title(self) -> list[str]:
        """What was measured, and what a figure is."""

    @abstractmethod
    def remarks(self) -> list[str]:
        """What a reader of the tables should know."""

    def tables(self) -> list[str]:
        return [line_table(self.lines, judged=not self.quick)]

    def to_dict(self) -> dict[str, Any]:
        return {"benchmark": self.benchmark, **asdict(self)}

    def __str__(self) -> str:
        about = [
            *self.title(),
            describe(self.stamp),
            describe_settings(self.settings),
            *([_TINY] if self.quick else []),
        ]
        return "\n\n".join(filter(None, ["\n".join(about), *self.tables(), "\n".join(self.remarks())]))
