"""Validation curves of all rows in one picture: a line for the mean of the seeds, a band from the least to the most."""

from statistics import mean
from typing import Any

from lrpe.report.palette import look
from lrpe.report.picture import Spec

Points = list[tuple[int, float]]  # (update, figure)


def curves_spec(curves: dict[str, list[Points]], titles: dict[str, str], figure: str, log: bool = False) -> Spec:
    """``curves`` has the points of each seed by row, ``titles`` the names of the rows, ``figure`` that of the axis."""
    values = [value for row, seeds in curves.items() for value in band(titles[row], seeds)]
    names, looks = [titles[row] for row in curves], [look(row.partition("+")[0]) for row in curves]
    several = any(len(seeds) > 1 for seeds in curves.values())
    colour: Spec = {"field": "method", "type": "nominal", "title": None, "sort": names, "legend": {"symbolOpacity": 1}}
    colour |= {"scale": {"domain": names, "range": [each.colour for each in looks]}}
    shape = colour | {"scale": {"domain": names, "range": [each.shape for each in looks]}}
    y = {"field": "mean", "type": "quantitative", "title": figure}
    y |= {"scale": {"zero": False, "nice": False, "padding": 8, "type": "log" if log else "linear"}}
    x = {"field": "update", "type": "quantitative", "title": "updates"}
    layers: list[Spec] = [
        {"mark": {"type": "line"}, "encoding": {"y": y}},
        {"mark": {"type": "point", "filled": True, "size": 45}, "encoding": {"y": y, "shape": shape}},
    ]
    if several:
        edges = {"y": y | {"field": "low"}, "y2": {"field": "high"}}
        layers.insert(0, {"mark": {"type": "area", "opacity": 0.15}, "encoding": edges})
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": 560,
        "height": 320,
        "data": {"values": values},
        "encoding": {"x": x, "color": colour},
        "layer": layers,
    }


def band(name: str, seeds: list[Points]) -> list[dict[str, Any]]:
    """Mean, least and most of the seeds at each update that all of them have."""
    common = set.intersection(*({update for update, _ in points} for points in seeds)) if seeds else set()
    found = []
    for update in sorted(common):
        figures = [dict(points)[update] for points in seeds]
        spread = {"mean": mean(figures), "low": min(figures), "high": max(figures)}
        found.append({"method": name, "update": update} | spread)
    return found
