"""metrics.jsonl of a run: a line of figures for each update and each evaluation."""

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

_UPDATE_LIMIT = 2**53  # updates, which JavaScript can still count, so that pictures can
_TAIL = 2**14  # bytes, which hold many lines
MetricsLine = dict[str, Any]  # the update, a whole number, and figures by name, which are floats


def read_metrics(folder: Path) -> tuple[list[MetricsLine], list[str]]:
    """Return the lines of metrics.jsonl, and a sentence for each that is damaged and left out."""
    found, damaged = [], []
    for number, text in enumerate(LineFile(folder / "metrics.jsonl").read(), 1):
        try:
            found.append(_parse(text))
        except LrpeError as error:
            damaged.append(f"Line {number} of {str(folder / 'metrics.jsonl')!r} is damaged and left out: {error}.")
    return found, damaged


def _parse(text: str) -> MetricsLine:
    """A line of figures; one that is not a number was written as null, or by earlier versions as NaN."""
    values = conform(parse_json(text), dict[str, float | None], "")
    line = {name: math.nan if figure is None else figure for name, figure in values.items()}
    update = line.get("update", math.nan)
    require(update.is_integer() and 0 <= update < _UPDATE_LIMIT, "it has no number of an update")
    return line | {"update": int(update)}


def read_last_update(folder: Path) -> int:
    """Return how many updates a run has done, from the end of its metrics, which may be long."""
    file = folder / "metrics.jsonl"
    if not file.is_file():
        return 0
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _TAIL))
        lines = stream.read().decode(errors="replace").split("\n")
    for text in reversed(lines):
        with suppress(LrpeError):  # the first may be cut off, and the last half-written
            return _parse(text)["update"]
    return 0


@dataclass(frozen=True)
class RunInfo:
    """What environment.json says beside the machine and the versions.

    Attributes:
        data: the name of the data and what is known of them, hashes among it.
        metric: the figure by which the run is judged.
        better: which way it improves.
    """

    data: dict[str, Any] = field(default_factory=dict)
    metric: str = ""
    better: Literal["lower", "higher"] = "lower"

    def __post_init__(self) -> None:
        if self.metric:
            check_name(self.metric, "metric")  # pictures are named after it


def read_run_info(folder: Path) -> RunInfo:
    """Return what environment.json of a run says; of a run that has none, nothing."""
    file = folder / "environment.json"
    return conform_known(read_json(file, dict[str, Any]), RunInfo) if file.exists() else RunInfo()
