"""A table of results: figures by row with their spread, the paper's beside them, and which are the best."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


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

    def rank(self, row: str, among: Sequence[str]) -> int | None:
        """0 for the best of these rows, 1 for the second; rows that print alike rank alike."""
        if self.better is None or row not in self.figures or row not in among:
            return None
        sign = -1 if self.better == "higher" else 1
        mine, others = self.rounded(row), {self.rounded(other) for other in among if other in self.figures}
        return sum(sign * other < sign * mine for other in others)

    def rounded(self, row: str) -> float:
        return round(self.figures[row], self.digits)

    def show(self, row: str) -> str:
        if row not in self.figures:
            return ""
        spread = f" ± {self.deviations[row]:.{self.digits}f}" if row in self.deviations else ""
        return f"{self.figures[row]:.{self.digits}f}{spread}"

    def show_paper(self, row: str) -> str:
        return f"{self.paper[row]:.{self.digits}f}" if row in self.paper else ""


Mark = Callable[[str, int | None], str]  # a cell and its rank as they are written


def laid_out(
    rows: dict[str, str], columns: Sequence[Column], ranked: Sequence[str], mark: Mark
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
