"""Validation curves of all rows: a line for the mean over seeds, a band from minimum to maximum."""

from itertools import count
from statistics import mean
from typing import Any

from lrpe.lab.report.palette import look
from lrpe.lab.report.picture import Spec

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
    found = []
    for update in sorted(common):
        figures = [dict(points)[update] for points in seeds]
        spread = {"mean": mean(figures), "low": min(figures), "high": max(figures)}
        found.append({"method": name, "update": update} | spread)
    return found
