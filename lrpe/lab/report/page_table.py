"""A table of results on a page: figures with small plots of their seeds, and the paired tests behind its marks."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from lrpe.lab.report.page import element, folded, heading
from lrpe.lab.report.paired_test import PairedTest
from lrpe.lab.report.table import FigureColumn, Rank, Style, Titles, lay_out

Scale = tuple[float, float]  # the figures at the left and the right end

_WIDTH, _HEIGHT, _PAD = 120, 18, 7  # of the drawing, in pixels; dots at the ends need the padding


def scale_of(figures: Iterable[float]) -> Scale | None:
    """Return the scale on which all these figures can be drawn, or None if they do not differ."""
    finite = [figure for figure in figures if math.isfinite(figure)]
    return (min(finite), max(finite)) if finite and min(finite) < max(finite) else None


def draw_interval(
    mean: float, seeds: Mapping[int, float], scale: Scale, references: Sequence[float] = (), digits: int = 2
) -> str:
    """Return the plot as SVG.

    Args:
        mean: the figure of the cell.
        seeds: the figures whose mean it is, by seed; empty for a figure that has none.
        scale: the ends of the plot; a figure beyond them is an arrow.
        references: figures with a vertical line, the first solid and the second dashed.
        digits: decimal places of the description, which is shown on hovering and read out.
    """
    lines = [
        f'<line class="reference" x1="{_x(each, scale)}" x2="{_x(each, scale)}" y1="0" y2="{_HEIGHT}"/>'
        for each in references
    ]
    values = [figure for figure in seeds.values() if math.isfinite(figure)]
    title = element("title", _describe(mean, seeds, digits))
    parts = [title, *lines, _range(values, scale) if len(values) > 1 else "", _mark(mean, scale)]
    return element("svg", "".join(parts), class_="interval", role="img", viewBox=f"0 0 {_WIDTH} {_HEIGHT}")


def _describe(mean: float, seeds: Mapping[int, float], digits: int) -> str:
    each = ", ".join(f"{figure:.{digits}f} (seed {seed})" for seed, figure in seeds.items())
    return f"{mean:.{digits}f}, the mean of {each}" if len(seeds) > 1 else f"{mean:.{digits}f}"


def _range(values: Sequence[float], scale: Scale) -> str:
    y = _HEIGHT / 2
    return f'<line class="range" x1="{_x(min(values), scale)}" x2="{_x(max(values), scale)}" y1="{y:g}" y2="{y:g}"/>'


def _mark(mean: float, scale: Scale) -> str:
    x, y = _x(mean, scale), _HEIGHT / 2
    if scale[0] <= mean <= scale[1]:
        return f'<circle cx="{x}" cy="{y:g}" r="4"/>'
    side = 1 if mean > scale[1] else -1
    return f'<path class="beyond" d="M{x + 6 * side},{y:g}l{-6 * side},-4v8Z"/>'


def _x(figure: float, scale: Scale) -> float:
    """Return the place of a figure in pixels; one beyond the scale is at its end."""
    share = (figure - scale[0]) / (scale[1] - scale[0])
    return round(_PAD + min(1.0, max(0.0, share)) * (_WIDTH - 2 * _PAD), 1)


def as_html(rows: Titles, columns: Sequence[FigureColumn], ranked: Sequence[str]) -> str:
    """Return the table with a small plot beside every figure of a ranked column."""
    _, lines = lay_out(rows, columns, ranked, lambda column, row, rank: _plotted(column, row, rank, ranked))
    header = [escape("method")]
    for column in columns:
        header += [escape(column.heading) + _ends(column, ranked), *(["paper"] if column.paper else [])]
    notes = [_HTML.legend(rows, columns, ranked), _explain_plots(rows, columns, ranked)]
    legend = "<br>".join(filter(None, notes))
    return html_table(header, lines, len(columns) > 3) + (f'\n<p class="legend">{legend}</p>' if legend else "")


def html_table(header: Sequence[str], lines: Sequence[Sequence[str]], dense: bool = False) -> str:
    """Return a table in a box that scrolls; the first cell of a line is text, all others are HTML.

    In a dense table the plots are below their figures, as they are on a phone.
    """
    cells = [[title, *(element("td", cell) for cell in line)] for title, *line in lines]
    return table_box(header, cells, "dense" if dense else "")


def table_box(header: Sequence[str], lines: Sequence[Sequence[str]], kind: str = "") -> str:
    """Return a table of a kind that style.css knows; a line is a title and its cells as ``<td>`` elements."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in header)
    body = "\n".join(f'<tr><th scope="row">{escape(title)}</th>{"".join(line)}</tr>' for title, *line in lines)
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    box = f"table {kind}".rstrip()
    return element("div", table, class_=box, tabindex="0")  # focusable, so that it scrolls by keyboard too


def _plotted(column: FigureColumn, row: str, rank: Rank | None, ranked: Sequence[str]) -> str:
    """Return the cell, with its plot if the column has one."""
    cell, scale, figure = _HTML.cell(column, row, rank), _scale(column, ranked), column.figures.get(row, math.nan)
    if scale is None or not math.isfinite(figure):
        return cell
    references = [column.figures[name] for name in _drawn_references(column, ranked)]
    drawn = draw_interval(figure, column.scores.get(row, {}), scale, references, column.digits)
    return element("div", f"<span>{cell}</span>{drawn}", class_="cell")


def _scale(column: FigureColumn, ranked: Sequence[str]) -> Scale | None:
    """Return the scale of the plots of a ranked column of ours; rows that are not ranked do not widen it."""
    if column.better is None or not column.scores:
        return None
    seeds = [figure for row in ranked for figure in column.scores.get(row, {}).values()]
    return scale_of([*seeds, *(column.figures[row] for row in ranked if row in column.figures)])


def _ends(column: FigureColumn, ranked: Sequence[str]) -> str:
    scale = _scale(column, ranked)
    ends = "".join(element("span", f"{end:.{column.digits}f}") for end in scale or ())
    return element("span", ends, class_="ends") if scale else ""


def _drawn_references(column: FigureColumn, ranked: Sequence[str]) -> list[str]:
    return [name for name in column.references if name in ranked and math.isfinite(column.figures.get(name, math.nan))]


def _explain_plots(rows: Titles, columns: Sequence[FigureColumn], ranked: Sequence[str]) -> str:
    """Return what the plots show; empty if there are none."""
    plotted = [column for column in columns if _scale(column, ranked)]
    if not plotted:
        return ""
    several = any(len(seeds) > 1 for column in plotted for seeds in column.scores.values())
    drawn = dict.fromkeys(name for column in plotted for name in _drawn_references(column, ranked))
    names = [rows[name] for name in drawn]
    lines = ", the vertical lines at " + " and ".join(map(escape, names)) if names else ""
    return f"Plots: the dot is {'the mean, the bar the range of the seeds' if several else 'the figure'}{lines}."


def show_tests(rows: Titles, columns: Sequence[FigureColumn]) -> str:
    """Return the differences from the references with their intervals and p-values, folded; empty without tests."""
    parts, references = [], dict.fromkeys(name for column in columns for name in column.tests)
    for column in columns:
        for reference, tests in column.tests.items():
            parts += [
                heading(f"{column.title}: difference from {rows[reference]}", 3),
                _show_tests(rows, column, tests),
            ]
    names = " and ".join(rows[name] for name in references)
    return folded(f"Differences from {names}, with intervals and p-values", *parts) if parts else ""


def _show_tests(rows: Titles, column: FigureColumn, tests: dict[str, PairedTest]) -> str:
    digits, lines = column.digits, []
    for row, test in tests.items():
        p = [f"{test.p:.2g}", f"<b>{test.adjusted:.2g}</b>" if test.significant else f"{test.adjusted:.2g}"]
        numbers = [f"{test.difference:+.{digits}f}", f"{test.low:+.{digits}f} to {test.high:+.{digits}f}"]
        numbers = [number.replace("-", "−") for number in numbers]
        lines.append([rows[row], *numbers, str(test.seeds), *p])
    return html_table(("method", "difference", "95 % interval", "seeds", "p", "p, corrected"), lines)


def _marks_in_html(marks: str, width: int) -> str:
    """Return the marks in a box as wide as all marks of the column, so that figures are aligned."""
    return f'<span class="marks" style="width: {0.6 * width:g}em">{marks}</span>' if width else ""


_HTML = Style("<b>{}</b>", "<u>{}</u>", write=escape, align=_marks_in_html, line_break="<br>")
