"""``lrpe bench compare``: what changed beyond the noise between two saved results of one benchmark."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lrpe.errors import LrpeError, require
from lrpe.lab.aligned import in_columns
from lrpe.lab.benchmarks.lines import Line
from lrpe.lab.benchmarks.measurement import read_result

NOISE = "within the noise"
_COUNTED = 0.01  # relative noise of a figure without quartiles, such as memory

_Key = tuple[str, str]  # (row, at) of a line


@dataclass(frozen=True)
class Change:
    """A line that both results have; ``ratio`` is B ÷ A."""

    a: Line
    b: Line
    ratio: float
    word: str


@dataclass(frozen=True)
class Comparison:
    """Two results compared; ``differs`` has the conditions (machine, versions, threads) that were not the same."""

    benchmark: str
    a: str
    b: str
    changes: list[Change]
    only_a: list[str]
    only_b: list[str]
    differs: dict[str, tuple[Any, Any]]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        rows = [[c.b.row, c.b.at, str(c.a), str(c.b), f"{c.ratio:.2f}", c.word] for c in self.changes]
        table = in_columns(["", "at", "A", "B", "B ÷ A", ""], rows, left=2)
        return "\n\n".join([f"{self.benchmark}\nA: {self.a}\nB: {self.b}", table, "\n".join(self.remarks())])

    def remarks(self) -> Iterator[str]:
        yield "A figure has changed if its interquartile ranges do not overlap; without quartiles, if by more than 1 %."
        for name, (a, b) in self.differs.items():
            yield f"They differ in {name}: {a} and {b}; that alone may explain a change."
        for side, names in (("A", self.only_a), ("B", self.only_b)):
            yield from (f"Only {side} has {name}." for name in names)


def compare_results(a_file: Path, b_file: Path) -> Comparison:
    try:
        return _compare_files(a_file, b_file)
    except (TypeError, KeyError, AttributeError) as error:
        files = f"{str(a_file)!r} and {str(b_file)!r}"
        raise LrpeError(
            f"Only results written by --save can be compared; {files} are not both such files: {error!r}."
        ) from error


def _compare_files(a_file: Path, b_file: Path) -> Comparison:
    a, b = read_result(a_file), read_result(b_file)
    require(
        a["benchmark"] == b["benchmark"],
        f"Only results of the same benchmark can be compared; {str(a_file)!r} is of {a['benchmark']!r} and "
        f"{str(b_file)!r} of {b['benchmark']!r}.",
    )
    of_a, of_b = _lines_by_key(a), _lines_by_key(b)
    return Comparison(
        a["benchmark"],
        _describe_origin(a, a_file),
        _describe_origin(b, b_file),
        changes=[change(of_a[key], line) for key, line in of_b.items() if key in of_a],
        only_a=[", ".join(key) for key in of_a if key not in of_b],
        only_b=[", ".join(key) for key in of_b if key not in of_a],
        differs={name: pair for name, pair in _compare_conditions(a, b) if pair[0] != pair[1]},
    )


def change(a: Line, b: Line) -> Change:
    assert a.figure is not None
    assert b.figure is not None
    return Change(a, b, b.figure / a.figure, word_for(a, b))


def word_for(a: Line, b: Line) -> str:
    """Say whether B is faster or slower than A, or, for memory, less or more."""
    (a_low, a_high), (b_low, b_high) = span(a), span(b)
    if b_low <= a_high and a_low <= b_high:
        return NOISE
    grew = b_low > a_high
    if b.seconds is None:
        return "more" if grew else "less"
    return "faster" if grew == (b.better == "higher") else "slower"


def span(line: Line) -> tuple[float, float]:
    assert line.figure is not None
    if line.low is None or line.high is None:
        return (1 - _COUNTED / 2) * line.figure, (1 + _COUNTED / 2) * line.figure
    return line.low, line.high


def _lines_by_key(result: dict[str, Any]) -> dict[_Key, Line]:
    """Return the lines with a figure by (row, at); for ``encoding``, also the rows without a goal."""
    lines = [Line(**line) for line in result.get("lines", ())]
    lines += [line for shape in result.get("shapes", ()) for line in _shape_lines(shape)]
    return {(line.row, line.at): line for line in lines if line.figure}


def _shape_lines(shape: dict[str, Any]) -> Iterator[Line]:
    at = "×".join(map(str, shape["shape"]))
    for row in shape["rows"]:
        for kind, figure in (("forward", row["forward"]), ("forward + backward", row["both"])):
            if figure is not None:
                values = (figure["ratio"], figure["low"], figure["high"], figure["seconds"])
                yield Line(f"{row['name']}, {kind}", at, None, "", *values)


def _describe_origin(result: dict[str, Any], file: Path) -> str:
    mark = result["stamp"]
    return f"{file}, {mark['date']}, commit {(mark['commit'] or 'unknown')[:12]}"


def _compare_conditions(a: dict[str, Any], b: dict[str, Any]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the conditions that should be equal in a fair comparison, with both values."""
    yield "--quick", (a["quick"], b["quick"])
    for where, name in (("stamp", "machine"), ("stamp", "python"), ("settings", "threads")):
        yield name, (a[where][name], b[where][name])
    yield "device", (a["settings"].get("device", "cpu"), b["settings"].get("device", "cpu"))
    a_versions, b_versions = a["stamp"]["versions"], b["stamp"]["versions"]
    for package in a_versions | b_versions:
        yield package, (a_versions.get(package), b_versions.get(package))
