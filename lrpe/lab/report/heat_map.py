"""A table of accuracies as a heat map: from chance to 100 %, rows by columns."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from lrpe.lab.report.page import element
from lrpe.lab.report.page_table import table_box
from lrpe.lab.report.picture import Spec, save_picture
from lrpe.lab.report.table import FigureColumn

_CELL = {"width": 62, "height": 24}  # pixels
_CAPTION = "Accuracy in %, the mean over seeds. The fuller the blue, the nearer to 100 %; no blue is chance or less."
_FULL = 0.76  # the share from which white letters have more contrast than black ones


def show_heat_map(rows: dict[str, str], columns: Sequence[FigureColumn], file: Path) -> str:
    """Save the heat map as SVG and PNG and return it as an HTML table; empty without a figure."""
    spec = heat_map_spec(rows, columns)
    if not spec["data"]["values"]:
        return ""
    save_picture(spec, file)
    header = ["method", *(escape(column.title) for column in columns)]
    lines = [
        [title, *(_cell(column, row) for column in columns)]
        for row, title in rows.items()
        if any(_is_drawn(column, row) for column in columns)
    ]
    return table_box(header, lines, "heat") + element("p", escape(_CAPTION), class_="legend")


def _cell(column: FigureColumn, row: str) -> str:
    if not _is_drawn(column, row):
        return element("td", "")
    share, shown = _share(column, row), f"{column.figures[row]:.{column.digits}f}"
    kind = {"class_": "full"} if share >= _FULL else {}
    return element("td", shown, style=f"--share: {share:.0%}", title=column.show(row), **kind)


def _is_drawn(column: FigureColumn, row: str) -> bool:
    return row != "chance" and math.isfinite(column.figures.get(row, math.nan))


def heat_map_spec(rows: dict[str, str], columns: Sequence[FigureColumn]) -> Spec:
    """Draw the figures of ``rows``, {name: title}, against the figure "chance" of each column."""
    values = [
        {
            "row": title,
            "column": column.title,
            "figure": f"{column.figures[row]:.{column.digits}f}",
            "share": _share(column, row),
        }
        for column in columns
        for row, title in rows.items()
        if _is_drawn(column, row)
    ]
    x = {
        "field": "column",
        "type": "nominal",
        "sort": None,
        "title": None,
        "axis": {"orient": "top", "labelAngle": -40},
    }
    y = {"field": "row", "type": "nominal", "sort": None, "title": None}
    colour = {"field": "share", "type": "quantitative", "legend": None}
    colour |= {"scale": {"domain": [0, 1], "range": ["#ffffff", "#0b4f8a"], "interpolate": "rgb"}}
    ink = {"condition": {"test": "datum.share > 0.55", "value": "#ffffff"}, "value": "#333333"}
    return {
        "width": {"step": _CELL["width"]},
        "height": {"step": _CELL["height"]},
        "data": {"values": values},
        "encoding": {"x": x, "y": y},
        "layer": [
            {"mark": {"type": "rect", "stroke": "#cccccc"}, "encoding": {"color": colour}},
            {"mark": {"type": "text", "fontSize": 11}, "encoding": {"text": {"field": "figure"}, "color": ink}},
        ],
    }


def _share(column: FigureColumn, row: str) -> float:
    """Return how far the figure is from chance, 0, to 100 %, 1."""
    chance = column.figures.get("chance", 0.0)
    return min(1.0, max(0.0, (column.figures[row] - chance) / (100 - chance)))
