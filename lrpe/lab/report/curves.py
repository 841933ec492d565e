"""Validation curves: a picture in a file, and a chart on a page, which can be hovered, switched and read by keys."""

import json
from html import escape
from itertools import count
from pathlib import Path
from statistics import mean
from typing import Any

from lrpe.lab.report.page import element, picture
from lrpe.lab.report.picture import Spec, look

Points = list[tuple[int, float]]  # (update, figure)
_FORMATS = {"accuracy": "~%", "perplexity": "~s"}  # d3 formats of the axis labels


def curves_spec(curves: dict[str, list[Points]], titles: dict[str, str], figure: str, log: bool = False) -> Spec:
    """Draw the curves of each row's seeds; ``titles`` names the rows, ``figure`` the y axis."""
    values = [value for row, seeds in curves.items() for value in band(titles[row], seeds)]
    names, looks = [titles[row] for row in curves], [look(row.partition("+")[0]) for row in curves]
    colour: Spec = {"field": "method", "type": "nominal", "title": None, "legend": {"symbolOpacity": 1}}
    shape = colour | {"scale": {"domain": names, "range": [each.shape for each in looks]}}
    colour |= {"scale": {"domain": names, "range": [each.colour for each in looks]}}
    y = {"field": "mean", "type": "quantitative", "title": f"validation {figure}"}
    y |= {"axis": {"format": _FORMATS.get(figure, "~g"), "tickCount": 6}}
    y |= {"scale": {"zero": False, "nice": False, "padding": 8, "type": "log" if log else "linear"}}
    layers: list[Spec] = [
        {"mark": {"type": "line"}, "encoding": {"y": y}},
        {"mark": {"type": "point", "filled": True, "size": 45, "opacity": 1}, "encoding": {"y": y, "shape": shape}},
    ]
    if any(len(seeds) > 1 for seeds in curves.values()):
        edges = {"y": y | {"field": "low"}, "y2": {"field": "high"}}
        layers.insert(0, {"mark": {"type": "area", "opacity": 0.15}, "encoding": edges})
    encoding = {"x": _updates(values), "color": colour}
    return {"width": 600, "height": 320, "data": {"values": values}, "encoding": encoding, "layer": layers}


def _updates(values: list[dict[str, Any]]) -> Spec:
    updates = [value["update"] for value in values]
    axis = {"values": _whole_ticks(min(updates), max(updates)), "format": "~s", "grid": False}
    scale = {"zero": False, "nice": False}
    return {"field": "update", "type": "quantitative", "title": "updates", "axis": axis, "scale": scale}


def _whole_ticks(least: int, most: int) -> list[int]:
    """Return at most eight integer ticks in a range, at a step of 1, 2 or 5 times a power of ten.

    >>> _whole_ticks(1, 3), _whole_ticks(66, 400)
    ([1, 2, 3], [100, 150, 200, 250, 300, 350, 400])
    """
    steps = (factor * 10**power for power in count() for factor in (1, 2, 5))
    step = next(step for step in steps if (most - least) // step < 8)
    return list(range(-(-least // step) * step, most + 1, step))


def band(name: str, seeds: list[Points]) -> list[dict[str, Any]]:
    """Return mean, minimum and maximum over the seeds at each update that all of them have."""
    common = set.intersection(*({update for update, _ in points} for points in seeds)) if seeds else set()
    points = []
    for update in sorted(common):
        figures = [dict(curve)[update] for curve in seeds]
        spread = {"mean": mean(figures), "low": min(figures), "high": max(figures)}
        points.append({"method": name, "update": update} | spread)
    return points


_HINT = "Point at a curve, or use the arrow keys, to read a value; the buttons hide and show rows."


def show_chart(curves: dict[str, list[Points]], titles: dict[str, str], figure: str, file: Path, caption: str) -> str:
    """Save the curves as SVG and PNG and return them as a chart.

    curves.js draws the chart; without JavaScript the page shows the picture instead.
    """
    still = picture(curves_spec(curves, titles, figure, log=figure == "perplexity"), file, caption)
    data = json.dumps(chart_data(curves, titles, figure, caption), ensure_ascii=False)
    content = element("figcaption", escape(caption))
    live = element("figure", content, class_="chart", hidden="", data_chart=data)
    return live + element("noscript", still)


def chart_data(curves: dict[str, list[Points]], titles: dict[str, str], figure: str, label: str) -> dict[str, Any]:
    """Return what curves.js draws: {mean, lowest, highest} over seeds of every row at every update."""
    rows = []
    for row, seeds in curves.items():
        looks = look(row.partition("+")[0])
        points = [[p["update"], p["mean"], p["low"], p["high"]] for p in band(titles[row], seeds)]
        shown = {"title": titles[row], "colour": looks.colour, "dark": looks.dark, "shape": looks.shape}
        rows += [shown | {"seeds": len(seeds), "points": points}] if points else []
    how = {"log": figure == "perplexity", "percent": figure == "accuracy", "hint": _HINT, "label": label}
    return {"figure": f"validation {figure}", "rows": rows} | how
