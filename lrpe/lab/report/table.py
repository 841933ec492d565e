"""A table of results: figures by row with their spread, the paper's beside them, and which are the best."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Rank = Literal["best", "second"]


@dataclass(frozen=True)
class Column:
    """Figures by row.

    Attributes:
        title: above it.
        figures: ours.
        digits: after the point.
        better: which way they are ranked; None if they are not.
        deviations: over seeds, of the rows that have several.
        paper: the paper's figures; they stand in a column of their own beside ours.
    """

    title: str
    figures: dict[str, float]
    digits: int = 2
    better: Literal["lower", "higher"] | None = "lower"
    deviations: dict[str, float] = field(default_factory=dict)
    paper: dict[str, float] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        return self.title + {"lower": " ↓", "higher": " ↑", None: ""}[self.better]

    def rank(self, row: str, among: Sequence[str]) -> Rank | None:
        """Return whether the row is the best or the second best of these rows, by the figures as they are printed.

        Several rows can be best together, and then none is second. A second place that is shared is not marked, nor is
        a column in which all rows are equal: a mark on most of the rows tells a reader nothing.
        """
        known = [other for other in among if math.isfinite(self.figures.get(other, math.nan))]
        if self.better is None or row not in known:
            return None
        mine, others = self._cost(row), [self._cost(other) for other in known if other != row]
        ahead = sum(other < mine for other in others)
        if ahead == 0:
            return "best" if any(other > mine for other in others) else None
        return "second" if ahead == 1 and mine not in others else None

    def _cost(self, row: str) -> float:
        """The printed figure, with the sign that makes less better."""
        return round(self.figures[row], self.digits) * (-1 if self.better == "higher" else 1)

    def show(self, row: str) -> str:
        if row not in self.figures:
            return ""
        if not math.isfinite(self.figures[row]):
            return "diverged"
        spread = f" ± {self.deviations[row]:.{self.digits}f}" if row in self.deviations else ""
        return f"{self.figures[row]:.{self.digits}f}{spread}"

    def show_paper(self, row: str) -> str:
        return f"{self.paper[row]:.{self.digits}f}" if row in self.paper else ""


_Mark = Callable[[str, Rank | None], str]  # writes a cell and its place


def lay_out(
    rows: dict[str, str], columns: Sequence[Column], ranked: Sequence[str], mark: _Mark
) -> tuple[list[str], list[list[str]]]:
    """The header and the lines of a table whose rows are {name: title}."""
    header, lines = [""], [[title] for title in rows.values()]
    for column in columns:
        header.append(column.heading)
        for line, row in zip(lines, rows, strict=True):
            line.append(mark(column.show(row), column.rank(row, ranked)))
        if column.paper:
            header.append("paper")
            for line, row in zip(lines, rows, strict=True):
                line.append(column.show_paper(row))
    return header, lines


def as_data(rows: dict[str, str], columns: Sequence[Column]) -> dict[str, Any]:
    """The table for JSON."""
    return {
        "rows": rows,
        "columns": [
            {
                "title": column.title,
                "better": column.better,
                "figures": column.figures,
                "deviations": column.deviations,
                "paper": {row: column.paper[row] for row in rows if row in column.paper},
            }
            for column in columns
        ],
    }
