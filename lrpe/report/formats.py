"""A table as text for a terminal, as Markdown, as LaTeX and as HTML: the best is bold, the second underlined."""

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from lrpe.aligned import in_columns
from lrpe.report.table import Column, Mark, laid_out
from lrpe.whole import write_whole


def marked(best: str, second: str, write: Callable[[str], str] = str) -> Mark:
    """Two templates, for the best and for the second; a cell without a figure has no mark."""
    return lambda cell, rank: {0: best, 1: second}.get(rank if cell else None, "{}").format(write(cell))  # type: ignore[arg-type]


def as_text(rows: dict[str, str], columns: Sequence[Column], ranked: Sequence[str]) -> str:
    """Aligned columns; the best has a star and the second a dot, which every terminal and file can show."""
    mark: Mark = lambda cell, rank: cell + {0: " *", 1: " ·"}.get(rank if cell else None, "  ")  # type: ignore[arg-type]  # noqa: E731
    header, lines = laid_out(rows, columns, ranked, mark)
    return in_columns(header, lines, left=1)


def as_markdown(rows: dict[str, str], columns: Sequence[Column], ranked: Sequence[str]) -> str:
    header, lines = laid_out(rows, columns, ranked, marked("**{}**", "<u>{}</u>"))
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *lines))


def as_latex(rows: dict[str, str], columns: Sequence[Column], ranked: Sequence[str]) -> str:
    """A tabular for booktabs."""
    header, lines = laid_out(rows, columns, ranked, marked(r"\textbf{{{}}}", r"\underline{{{}}}", in_latex))
    head = " & ".join(in_latex(cell) for cell in header)
    body = [" & ".join([in_latex(line[0]), *line[1:]]) for line in lines]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
            r"\toprule",
            rf"{head} \\",
            r"\midrule",
            *(rf"{line} \\" for line in body),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


LATEX = {"±": r"$\pm$", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "×": r"$\times$", "%": r"\%", "_": r"\_", "&": r"\&"}


def in_latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def as_html(rows: dict[str, str], columns: Sequence[Column], ranked: Sequence[str]) -> str:
    header, lines = laid_out(rows, columns, ranked, marked("<b>{}</b>", "<u>{}</u>", escape))
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in ("method", *header[1:]))
    body = "\n".join(
        f'<tr><th scope="row">{escape(line[0])}</th>{"".join(f"<td>{cell}</td>" for cell in line[1:])}</tr>'
        for line in lines
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def write_formats(file: Path, rows: dict[str, str], columns: Sequence[Column], ranked: Sequence[str]) -> None:
    """The table as ``file`` with the ending of each format; a page is made of parts."""
    for ending, write in {".txt": as_text, ".md": as_markdown, ".tex": as_latex}.items():
        write_whole(file.with_suffix(ending), write(rows, columns, ranked) + "\n")
