"""Reading the files of a run's folder: metrics.jsonl, a line per update and evaluation, and environment.json."""

import math
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lrpe.errors import LrpeError, require
from lrpe.lab.names import check_name
from lrpe.lab.training.writing import LineFile
from lrpe.schema import conform, conform_known
from lrpe.serialization import parse_json, read_json

_UPDATE_LIMIT = 2**53  # the integers that JavaScript counts exactly, since pictures are drawn there
_TAIL = 2**14  # bytes read from the end of a file, enough for many lines
MetricsLine = dict[str, Any]  # "update", an int, and metrics by name, floats


def read_metrics(folder: Path) -> tuple[list[MetricsLine], list[str]]:
    """Return the lines of metrics.jsonl, and a message for each damaged line, which is skipped."""
    found, damaged = [], []
    for number, text in enumerate(LineFile(folder / "metrics.jsonl").read(), 1):
        try:
            found.append(_parse(text))
        except LrpeError as error:
            damaged.append(f"Line {number} of {str(folder / 'metrics.jsonl')!r} is damaged and left out: {error}.")
    return found, damaged


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
    file = folder / "environment.json"
    return conform_known(read_json(file, dict[str, Any]), RunInfo) if file.exists() else RunInfo()
