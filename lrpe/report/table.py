"""A table of results for the terminal and for a page: the best is bold, the second underlined."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from lrpe.benchmarks.columns import in_columns


@dataclass(frozen=True)
class Column:
    """Figures by row; ``better`` says which way they are ranked, and is None if they are not."""

    title: str
    figures: dict[str, float]
    digits: int = 2
    better: str | None = "lower"

    def rank(self, row: str, among: Sequence[str]) -> int | None:
        """0 for the best of these rows, 1 for the second."""
        if self.better is None or row not in self.figures or row not in among:
            return None
        ordered = sorted(
            (r for r in among if r in self.figures), key=self.figures.__getitem__, reverse=self.better == "higher"
        )
        return ordered.index(row)

    def show(self, row: str) -> str:
        return f"{self.figures[row]:.{self.digits}f}" if row in self.figures else ""


def as_text(rows: dict[str, str], columns: Sequence[Column], ranked: Sequence[str]) -> str:
    """Rows {name: title}; in the terminal the best has a star and the second a dot."""

    def cell(column: Column, row: str) -> str:
        mark = {0: " *", 1: " ·"}.get(column.rank(row, ranked) if column.better else None, "  ")  # type: ignore[arg-type]
        return column.show(row) + mark

    lines = [[title, *(cell(column, row) for column in columns)] for row, title in rows.items()]
    return in_columns(["", *(column.title for column in columns)], lines, left=1)


def as_html(rows: dict[str, str], columns: Sequence[Column], ranked: Sequence[str]) -> str:
    def cell(column: Column, row: str) -> str:
        wrap = {0: "<b>{}</b>", 1: "<u>{}</u>"}.get(column.rank(row, ranked), "{}")  # type: ignore[arg-type]
        return f"<td>{wrap.format(escape(column.show(row)))}</td>"

    head = "".join(f'<th scope="col">{escape(column.title)}</th>' for column in columns)
    body = "\n".join(
        f'<tr><th scope="row">{escape(title)}</th>{"".join(cell(column, row) for column in columns)}</tr>'
        for row, title in rows.items()
    )
    return f'<table>\n<thead><tr><th scope="col">method</th>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'
