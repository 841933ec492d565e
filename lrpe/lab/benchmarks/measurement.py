"""The result that every benchmark returns, and its files: JSON to compare, text to read."""

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

_TINY = "Quick: with these tiny sizes the figures show that the benchmark runs; they say nothing about speed."


@dataclass(frozen=True)
class Measurement(ABC):
    """A benchmark's lines, with how (``settings``) and where (``stamp``) they were measured.

    A quick measurement has tiny sizes; it is not judged against the goals, and neither is one of a GPU.
    """

    benchmark: ClassVar[str]
    quick: bool
    rounds: int
    settings: dict[str, Any]
    stamp: dict[str, Any]
    lines: list[Line]

    @abstractmethod
    def title(self) -> list[str]:
        """Return what was measured and what a figure means."""

    @abstractmethod
    def remarks(self) -> list[str]:
        """Return notes for readers of the tables."""

    def tables(self) -> list[str]:
        return [line_table(self.lines, judged=self.judged)]

    @property
    def judged(self) -> bool:
        """Return whether the goals apply: they are for full sizes on a CPU."""
        return not self.quick and self.settings["device"] == "cpu"

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


def result_files(path: Path) -> tuple[Path, Path]:
    """Return PATH.json and PATH.txt; a PATH with either ending names both."""
    stem = path.with_suffix("") if path.suffix in (".json", ".txt") else path
    return stem.with_name(f"{stem.name}.json"), stem.with_name(f"{stem.name}.txt")


def prepare(path: Path) -> None:
    """Create the folder that ``save`` will write to, so that a bad path fails before the measurement, not after it."""
    require(path.name not in ("", ".."), f"path must name a file; got path={str(path)!r}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise LrpeError(f"The folder {str(path.parent)!r} cannot be written: {error}. Choose another path.") from None


def save(path: Path, result: dict[str, Any], text: str) -> tuple[Path, Path]:
    """Write both files, each under a temporary name that is then renamed: a reader never sees half a file."""
    files = result_files(path)
    for file, content in zip(files, (json.dumps(result, indent=2, ensure_ascii=False), text), strict=True):
        write_atomically(file, f"{content}\n")
    return files


def read_result(path: Path) -> dict[str, Any]:
    """Read the JSON that ``save`` wrote."""
    result = read_json(path, dict[str, Any])
    named = isinstance(result.get("benchmark"), str)
    require(named, f"A result has a key 'benchmark'; {str(path)!r} has none. Give a .json file written by --save.")
    return result
