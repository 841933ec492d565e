"""The files of a run's folder: appending to them on a disk that may be full, and reading them."""

import math
import os
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

from safetensors import SafetensorError

from lrpe import atomic
from lrpe.atomic import write_atomically
from lrpe.errors import LrpeError, require
from lrpe.schema import check_name, conform, conform_known
from lrpe.serialization import parse_json, read_json

T = TypeVar("T")


def naming_failure(path: Path) -> AbstractContextManager[None]:
    """Name a failure to write as ``atomic.naming_failure`` does, also for files of weights."""
    return atomic.naming_failure(path, SafetensorError)


def write_all(stream: BinaryIO, data: bytes) -> None:
    """Write all of ``data``. A nearly full disk accepts a part before it fails, so one ``write`` is not enough."""
    while data:
        data = data[stream.write(data) :]


def _open_here(file: Path) -> int:
    """Open a file for appending without following links or blocking on a pipe: the folder may be untrusted."""
    unless = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # opening a pipe without a reader would block
    return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | unless, 0o666)


class AppendFile:
    """A file opened once for appending, unbuffered: what was written survives the death of this process."""

    def __init__(self, file: Path):
        self.file = file
        self.stream: BinaryIO | None = None

    def write(self, data: bytes) -> None:
        with naming_failure(self.file):
            self.stream = self.stream or os.fdopen(_open_here(self.file), "ab", buffering=0)
            write_all(self.stream, data)

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None


class LineFile(AppendFile):
    """A text file of lines."""

    def add(self, line: str) -> None:
        self.write(f"{line}\n".encode())

    def read(self) -> list[str]:
        """Return the lines. Invalid UTF-8 is replaced, so that it damages one line and not the file."""
        if not self.file.exists():
            return []
        require(self.file.is_file(), f"{str(self.file)!r} is not a file. Move it away and rerun to resume.")
        try:
            return self.file.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n")
        except OSError as error:
            raise LrpeError(f"{str(self.file)!r} cannot be read: {error.strerror}.") from error

    def rewrite(self, lines: list[str]) -> None:
        self.close()
        with naming_failure(self.file):
            write_atomically(self.file, "".join(f"{line}\n" for line in lines))


_UPDATE_LIMIT = 2**53  # the integers that JavaScript counts exactly, since pictures are drawn there
_TAIL = 2**14  # bytes read from the end of a file, enough for many lines
MetricsLine = dict[str, Any]  # "update", an int, and metrics by name, floats


def read_metrics(folder: Path) -> tuple[list[MetricsLine], list[str]]:
    """Return the lines of metrics.jsonl, and a message for each damaged line, which is skipped."""
    lines, damaged = [], []
    for number, text in enumerate(LineFile(folder / "metrics.jsonl").read(), 1):
        try:
            lines.append(_parse(text))
        except LrpeError as error:
            damaged.append(f"Line {number} of {str(folder / 'metrics.jsonl')!r} is damaged and left out: {error}.")
    return lines, damaged


def _parse(text: str) -> MetricsLine:
    """Parse a line. NaN is written as null; earlier versions wrote NaN."""
    values = conform(parse_json(text), dict[str, float | None], "")
    line = {name: math.nan if figure is None else figure for name, figure in values.items()}
    update = line.get("update", math.nan)
    require(update.is_integer() and 0 <= update < _UPDATE_LIMIT, "it has no valid update number")
    return line | {"update": int(update)}


def read_last_update(folder: Path) -> int:
    """Return the number of updates of a run from the end of metrics.jsonl, without reading all of it."""
    file = folder / "metrics.jsonl"
    if not file.is_file():
        return 0
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _TAIL))
        lines = stream.read().decode(errors="replace").split("\n")
    for text in reversed(lines):
        with suppress(LrpeError):  # the first line may be cut off, the last half written
            return _parse(text)["update"]
    return 0


@dataclass(frozen=True)
class RunInfo:
    """Facts of environment.json apart from the machine and versions.

    Attributes:
        data: the name of the data and facts about them, such as hashes.
        metric: the metric that selects the best checkpoint.
        better: whether lower or higher values are better.
    """

    data: dict[str, Any] = field(default_factory=dict)
    metric: str = ""
    better: Literal["lower", "higher"] = "lower"

    def __post_init__(self) -> None:
        if self.metric:
            check_name(self.metric, "metric")  # files of pictures are named after it


def read_run_info(folder: Path) -> RunInfo:
    """Return the facts in a run's environment.json, or empty ones without that file."""
    return _read_environment(folder, RunInfo)


def _read_environment(folder: Path, kind: type[T]) -> T:
    """Return those facts of environment.json that are fields of a dataclass, or its defaults without that file."""
    file = folder / "environment.json"
    return conform_known(read_json(file, dict[str, Any]), kind) if file.exists() else kind()


@dataclass(frozen=True)
class RunOrigin:
    """Facts of environment.json about where a run began.

    Attributes:
        commit: the commit of this package, if it was in a repository.
        dirty: whether the repository had changes or new files that were not committed.
        processor: the model of the processor.
        gpus: the names of the GPUs.
        threads: the number of threads that torch used, or 0 if that was not recorded.
        data: the name of the data and facts about them, such as hashes.
    """

    commit: str | None = None
    dirty: bool | None = None
    processor: str = ""
    gpus: list[str] = field(default_factory=list)
    threads: int = 0
    data: dict[str, Any] = field(default_factory=dict)


def read_run_origin(folder: Path) -> RunOrigin:
    """Return where a run began, or an empty origin without its environment.json."""
    return _read_environment(folder, RunOrigin)
