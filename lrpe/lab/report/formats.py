"""A table as text for a terminal, as Markdown, as LaTeX and as HTML.

Each format marks the best and the second best figure of a column in its own way and explains its marks below the
table. Cells are text: every format escapes what it would read as markup.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from lrpe.atomic import write_atomically
from lrpe.lab.aligned import in_columns
from lrpe.lab.report.html import element
from lrpe.lab.report.table import Column, Rank, lay_out

_Titles = dict[str, str]  # title by row name


@dataclass(frozen=True)
class _Style:
    """How a format writes cells.

    Attributes:
        best: the template of the best figure of a column.
        second: the template of the second best.
        other: the template of the rest.
        write: escapes what the format would read as markup.
    """

    best: str
    second: str
    other: str = "{}"
    write: Callable[[str], str] = str

    def mark(self, cell: str, rank: Rank | None) -> str:
        template = {"best": self.best, "second": self.second, None: self.other}[rank]
        return template.format(self.write(cell))

    def legend(self, rows: _Titles, columns: Sequence[Column], ranked: Sequence[str]) -> str:
        """Return the meaning of the marks used and the rows that are not ranked; empty if no figure is marked."""
        used = {column.rank(row, ranked) for column in columns for row in rows}
        known: dict[Rank, str] = {"best": self.best.format("best"), "second": self.second.format("second best")}
        meaning = ", ".join(words for rank, words in known.items() if rank in used)
        unranked = "; ".join(self.write(title) for row, title in rows.items() if row not in ranked)
        return f"{meaning} (not ranked: {unranked})" if meaning and unranked else meaning


def as_text(rows: _Titles, columns: Sequence[Column], ranked: Sequence[str]) -> str:
    """Return aligned columns, with a star after the best figure and a dot after the second best."""
    header, lines = lay_out(rows, columns, ranked, _TEXT.mark)
    return _with_legend(in_columns(header, lines, left=1), "\n", _TEXT.legend(rows, columns, ranked))


def as_markdown(rows: _Titles, columns: Sequence[Column], ranked: Sequence[str]) -> str:
    header, lines = lay_out(rows, columns, ranked, _MARKDOWN.mark)
    rule = ["---", *["---:"] * (len(header) - 1)]
    titled = [list(map(_in_markdown, header)), rule, *([_in_markdown(title), *line] for title, *line in lines)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in titled)
    return _with_legend(table, "\n", _MARKDOWN.legend(rows, columns, ranked))


def as_latex(rows: _Titles, columns: Sequence[Column], ranked: Sequence[str]) -> str:
    """Return a LaTeX tabular with booktabs rules."""
    header, lines = lay_out(rows, columns, ranked, _LATEX.mark)
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


def as_html(rows: _Titles, columns: Sequence[Column], ranked: Sequence[str]) -> str:
    header, lines = lay_out(rows, columns, ranked, _HTML.mark)
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in ("method", *header[1:]))
    body = "\n".join(
        f'<tr><th scope="row">{escape(title)}</th>{"".join(f"<td>{cell}</td>" for cell in line)}</tr>'
        for title, *line in lines
    )
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    legend = _HTML.legend(rows, columns, ranked)
    box = element("div", table, class_="table", tabindex="0")  # focusable, so that it scrolls by keyboard too
    return box + (f'\n<p class="legend">{legend}</p>' if legend else "")


def write_formats(file: Path, rows: _Titles, columns: Sequence[Column], ranked: Sequence[str]) -> None:
    """Write the table as text, Markdown and LaTeX: ``file`` with the suffix of each; HTML is written with its page."""
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
_LATEX_MARKUP = {"±": r"$\pm$", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "×": r"$\times$", "·": r"$\cdot$"}
_LATEX_MARKUP |= {"<": r"\textless{}", ">": r"\textgreater{}", "\\": r"\textbackslash{}"}
_LATEX_MARKUP |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {c: f"\\{c}" for c in "%_&#${}"}

_TEXT = _Style("{} *", "{} ·", "{}  ")
_MARKDOWN = _Style("**{}**", "<u>{}</u>", write=_in_markdown)
_LATEX = _Style(r"\textbf{{{}}}", r"\underline{{{}}}", write=_in_latex)
_HTML = _Style("<b>{}</b>", "<u>{}</u>", write=escape)
