"""A table of results: figures by row with their deviations, the paper's figures, and the ranks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Rank = Literal["best", "second"]


@dataclass(frozen=True)
class Column:
    """Figures by row.

    Attributes:
        title: the heading.
        figures: our figures by row.
        digits: decimal places.
        better: whether lower or higher is better; None if the rows are not ranked.
        deviations: standard deviations over seeds, for rows with several.
        paper: the paper's figures, printed in a column of their own next to ours.
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
        """Return whether the row is the best or the second best of these rows, by the printed figures.

        Rows that tie for best are all best, and then none is second. A tie for second is not marked, nor is a column in
        which all rows are equal, because marks on most rows would tell a reader nothing.
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
        """Return the printed figure, negated if higher is better."""
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


_Mark = Callable[[str, Rank | None], str]  # formats a cell of a rank


def lay_out(
    rows: dict[str, str], columns: Sequence[Column], ranked: Sequence[str], mark: _Mark
) -> tuple[list[str], list[list[str]]]:
    """Return the header and the lines of a table; ``rows`` is {name: title}."""
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
    """Return the table as JSON-compatible data, with unrounded figures."""
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
