"""A table of results, and the table as text for a terminal, as Markdown and as LaTeX; for HTML see page_table.

Each format marks the best and the second best figure of a column in its own way and explains its marks below the
table. Cells are text: every format escapes what it would read as markup.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import stdev
from typing import Any, Literal

from lrpe.atomic import write_atomically
from lrpe.lab.aligned import in_columns
from lrpe.lab.experiments.methods import MARKS, REFERENCES
from lrpe.lab.report.paired_test import LEVEL, PairedTest

Rank = Literal["best", "second"]


@dataclass(frozen=True)
class FigureColumn:
    """Figures by row.

    Attributes:
        title: the heading.
        figures: our figures by row.
        digits: decimal places.
        better: whether lower or higher is better; None if the rows are not ranked.
        scores: the figures by row and seed that ``figures`` are the means of.
        paper: the paper's figures, printed in a column of their own next to ours.
        tests: comparisons by reference and row.
        references: the rows with which the others are compared; ``MARKS`` has the mark of each.
    """

    title: str
    figures: dict[str, float]
    digits: int = 2
    better: Literal["lower", "higher"] | None = "lower"
    scores: dict[str, dict[int, float]] = field(default_factory=dict)
    paper: dict[str, float] = field(default_factory=dict)
    tests: dict[str, dict[str, PairedTest]] = field(default_factory=dict)
    references: tuple[str, ...] = REFERENCES

    @property
    def heading(self) -> str:
        return self.title + {"lower": " ↓", "higher": " ↑", None: ""}[self.better]

    @property
    def deviations(self) -> dict[str, float]:
        """The standard deviations over seeds, for rows with several of which none diverged."""
        several = {row: list(seeds.values()) for row, seeds in self.scores.items() if len(seeds) > 1}
        return {row: stdev(values) for row, values in several.items() if all(map(math.isfinite, values))}

    @property
    def marks_used(self) -> str:
        """The marks of the references from which at least one row differs significantly."""
        return "".join(
            mark
            for reference, mark in mark_references(self.references).items()
            if any(test.significant for test in self.tests.get(reference, {}).values())
        )

    def marks(self, row: str) -> str:
        """Return the marks of the references from which the row differs significantly."""
        tests = {mark: self.tests.get(name, {}).get(row) for name, mark in mark_references(self.references).items()}
        return "".join(mark for mark, test in tests.items() if test and test.significant)

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


def mark_references(references: Sequence[str]) -> dict[str, str]:
    """Return the mark of a difference from each reference.

    >>> mark_references(("base", "rope"))
    {'base': '†', 'rope': '‡'}
    """
    return dict(zip(references, MARKS, strict=False))


_Write = Callable[[FigureColumn, str, Rank | None], str]  # writes the cell of a column and row


def lay_out(
    rows: dict[str, str], columns: Sequence[FigureColumn], ranked: Sequence[str], write: _Write
) -> tuple[list[str], list[list[str]]]:
    """Return the header and the lines of a table; ``rows`` is {name: title}."""
    header, lines = [""], [[title] for title in rows.values()]
    for column in columns:
        header.append(column.heading)
        for line, row in zip(lines, rows, strict=True):
            line.append(write(column, row, column.rank(row, ranked)))
        if column.paper:
            header.append("paper")
            for line, row in zip(lines, rows, strict=True):
                line.append(column.show_paper(row))
    return header, lines


def as_data(rows: dict[str, str], columns: Sequence[FigureColumn]) -> dict[str, Any]:
    """Return the table as JSON-compatible data, with unrounded figures."""
    return {
        "rows": rows,
        "columns": [
            {
                "title": column.title,
                "better": column.better,
                "figures": column.figures,
                "deviations": column.deviations,
                "seeds": column.scores,
                "tests": {
                    reference: {row: asdict(test) for row, test in by_row.items()}
                    for reference, by_row in column.tests.items()
                },
                "paper": {row: column.paper[row] for row in rows if row in column.paper},
            }
            for column in columns
        ],
    }


Titles = dict[str, str]  # title by row name


@dataclass(frozen=True)
class Style:
    """The templates with which a format writes cells.

    Attributes:
        best: the template of the best figure of a column.
        second: the template of the second best.
        other: the template of the rest.
        write: escapes what the format would read as markup.
        align: pads a row's marks to the width of all marks used in its column.
        line_break: what begins a new line in the legend.
    """

    best: str
    second: str
    other: str = "{}"
    write: Callable[[str], str] = str
    align: Callable[[str, int], str] = lambda marks, _: marks
    line_break: str = "\n"

    def cell(self, column: FigureColumn, row: str, rank: Rank | None) -> str:
        template = {"best": self.best, "second": self.second, None: self.other}[rank]
        marks = self.align(self.write(column.marks(row)), len(column.marks_used))
        return template.format(self.write(column.show(row))) + marks

    def legend(self, rows: Titles, columns: Sequence[FigureColumn], ranked: Sequence[str]) -> str:
        """Return the meaning of the marks used and the rows that are not ranked; empty if no figure is marked."""
        used = {column.rank(row, ranked) for column in columns for row in rows}
        known: dict[Rank, str] = {"best": self.best.format("best"), "second": self.second.format("second best")}
        meaning = ", ".join(words for rank, words in known.items() if rank in used)
        unranked = "; ".join(self.write(title) for row, title in rows.items() if row not in ranked)
        ranks = f"{meaning} (not ranked: {unranked})" if meaning and unranked else meaning
        return self.line_break.join(filter(None, [ranks, self.write(explain_marks(rows, columns))]))


def explain_marks(rows: Titles, columns: Sequence[FigureColumn]) -> str:
    """Return what the marks of significance mean; empty if nothing was tested."""
    marks = {name: mark for column in columns for name, mark in mark_references(column.references).items()}
    tested = [name for name in marks if any(column.tests.get(name) for column in columns)]
    if not tested:
        return ""
    used = {mark for column in columns for mark in column.marks_used}
    tests = [test for column in columns for by_row in column.tests.values() for test in by_row.values()]
    seeds = " or ".join(map(str, sorted({test.seeds for test in tests})))
    differs = ", ".join(f"{marks[name]} differs from {rows[name]}" for name in tested if marks[name] in used)
    finding = differs or f"No row differs significantly from {' or '.join(rows[name] for name in tested)}"
    return f"{finding} (paired t-test over {seeds} seeds, p < {LEVEL:g} after Holm's correction)"


def as_text(rows: Titles, columns: Sequence[FigureColumn], ranked: Sequence[str]) -> str:
    """Return aligned columns, with a star after the best figure and a dot after the second best."""
    header, lines = lay_out(rows, columns, ranked, _TEXT.cell)
    return _with_legend(in_columns(header, lines, left=1), "\n", _TEXT.legend(rows, columns, ranked))


def as_markdown(rows: Titles, columns: Sequence[FigureColumn], ranked: Sequence[str]) -> str:
    header, lines = lay_out(rows, columns, ranked, _MARKDOWN.cell)
    rule = ["---", *["---:"] * (len(header) - 1)]
    titled = [list(map(_in_markdown, header)), rule, *([_in_markdown(title), *line] for title, *line in lines)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in titled)
    return _with_legend(table, "\n", _MARKDOWN.legend(rows, columns, ranked))


def as_latex(rows: Titles, columns: Sequence[FigureColumn], ranked: Sequence[str]) -> str:
    """Return a LaTeX tabular with booktabs rules."""
    header, lines = lay_out(rows, columns, ranked, _LATEX.cell)
    body = [" & ".join([_in_latex(title), *line]) for title, *line in lines]
    table = [
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        rf"{' & '.join(map(_in_latex, header))} \\",
        r"\midrule",
        *(rf"{line} \\" for line in body),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return _with_legend("\n".join(table), "\\par\\smallskip\n", _LATEX.legend(rows, columns, ranked))


def write_formats(file: Path, rows: Titles, columns: Sequence[FigureColumn], ranked: Sequence[str]) -> None:
    """Write the table as text, Markdown and LaTeX: ``file`` with the suffix of each."""
    for ending, write in {".txt": as_text, ".md": as_markdown, ".tex": as_latex}.items():
        write_atomically(file.with_suffix(ending), write(rows, columns, ranked) + "\n")


def _with_legend(table: str, gap: str, legend: str) -> str:
    return f"{table}\n{gap}{legend}" if legend else table


def _in_markdown(text: str) -> str:
    return "".join(_MARKDOWN_MARKUP.get(character, character) for character in " ".join(text.split()))


def _in_latex(text: str) -> str:
    return "".join(_LATEX_MARKUP.get(character, character) for character in text)


# Underscores stay: inside a word they are not emphasis, and a backslash would show where Markdown is read as text.
_MARKDOWN_MARKUP = {c: f"\\{c}" for c in "\\`*[]|"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_LATEX_MARKUP = {"±": r"$\pm$", "↓": r"$\downarrow$", "↑": r"$\uparrow$"}
_LATEX_MARKUP |= {
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "§": r"$^\S$",
    "¶": r"$^\P$",
    "×": r"$\times$",
    "·": r"$\cdot$",
}
_LATEX_MARKUP |= {"<": r"\textless{}", ">": r"\textgreater{}", "\\": r"\textbackslash{}"}
_LATEX_MARKUP |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {c: f"\\{c}" for c in "%_&#${}"}

_TEXT = Style("{} *", "{} ·", "{}  ", align=lambda marks, width: f" {marks:<{width}}" if width else "")
_MARKDOWN = Style("**{}**", "<u>{}</u>", write=_in_markdown, line_break="<br>\n")
_LATEX = Style(r"\textbf{{{}}}", r"\underline{{{}}}", write=_in_latex, line_break="\\newline\n")
