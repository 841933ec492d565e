"""The course of training: validation curves, learned angles, and seconds per update."""

import json
from collections.abc import Iterator
from html import escape
from itertools import count
from pathlib import Path
from statistics import mean
from typing import Any

from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.planning import Plan
from lrpe.lab.experiments.runs_on_disk import Scores, curve, means, seconds_per_update
from lrpe.lab.experiments.tables import title_of
from lrpe.lab.report.page import element, folded, paragraph, picture, pictures
from lrpe.lab.report.page_table import as_html
from lrpe.lab.report.picture import SOFT, Spec, file_name, look, powers_of_ten, ramp
from lrpe.lab.report.table import FigureColumn
from lrpe.models.block import Block
from lrpe.models.saved import load_model

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


def angles_picture(run: Path, file: Path, title: str) -> str:
    """Return the angles of a run's best model as HTML with its caption; empty if it has learned none."""
    angles = angles_of(run / "best") if (run / "best").exists() else []
    return (
        picture(angles_spec(angles), file, f"{title}: learned angles against their initial values.") if angles else ""
    )


def angles_of(model_folder: Path) -> list[dict[str, Any]]:
    """Return {"layer", "start", "learned"} of every learned angle of a sequence model; the sign is dropped."""
    model = load_model(model_folder)
    angles = []
    for block in (module for module in model.modules() if isinstance(module, Block)):
        config = model.config.layer_encoding(block.layer)
        if config.learned_angles and config.axes == 1 and config.matrix in ("unitary", "orthogonal"):
            pairs = zip(_alpha(config.build()), _alpha(block.attention.encoding), strict=True)
            angles += [{"layer": f"layer {block.layer}", "start": a, "learned": abs(b)} for a, b in pairs]
    return angles


def _alpha(encoding: Any) -> list[float]:
    return encoding.matrix.angles.scaled().flatten().tolist()


def angles_spec(points: list[dict[str, Any]]) -> Spec:
    """Draw each angle against its initial value; points on the diagonal have not moved."""
    drawn = [point for point in points if point["start"] > 0 and point["learned"] > 0]  # the axes are logarithmic
    layers = list(dict.fromkeys(point["layer"] for point in drawn))
    colour = {"field": "layer", "type": "nominal", "title": None}
    shape = colour | {"scale": {"domain": layers}}
    colour |= {"scale": {"domain": layers, "range": ramp(len(layers))}}
    x, y = (_axis(*named, drawn) for named in (("start", "initial α"), ("learned", "learned |α|")))
    (left, right), (bottom, top) = x["scale"]["domain"], y["scale"]["domain"]
    ends = [{"start": end, "learned": end} for end in (max(left, bottom), min(right, top))]
    diagonal = {"type": "line", "color": SOFT, "strokeDash": [4, 4], "strokeWidth": 1}
    return {
        "width": 340,
        "height": 280,
        "encoding": {"x": x, "y": y},
        "layer": [
            {"data": {"values": ends}, "mark": diagonal},
            {
                "data": {"values": drawn},
                "mark": {"type": "point", "size": 30, "opacity": 1},
                "encoding": {"color": colour, "shape": shape},
            },
        ],
    }


def _axis(field: str, title: str, points: list[dict[str, Any]]) -> Spec:
    marks = powers_of_ten(point[field] for point in points)
    scale = {"type": "log", "domain": [marks["values"][0], marks["values"][-1]]}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": marks}


_Experiments = dict[str, list[Experiment]]  # one per seed, by row


def show_curves(plan: Plan, setting: str, out: Path) -> str:
    """Return the validation curves of every column as HTML."""
    return pictures(
        drawn
        for name, experiments in trained(plan, setting).items()
        for drawn in _curves_of(plan, experiments, out / file_name(setting, name), name)
    )


def show_training(plan: Plan, setting: str, out: Path) -> Iterator[str]:
    """Yield the seconds per update of every column, and the learned angles."""
    columns = trained(plan, setting)
    speeds = [FigureColumn(name, _speed_of(plan, experiments), 3, None) for name, experiments in columns.items()]
    yield folded(
        "Seconds per update",
        paragraph("Wall-clock times of these runs, not a benchmark; for that, run lrpe table speed."),
        as_html({row: title_of(row) for row in plan.rows}, speeds, []),
    )
    angles = pictures((_angles_of(plan, *first, out / setting) for first in _first_seeds(columns)), small=True)
    if angles:
        yield folded("Learned angles", angles)


def _first_seeds(columns: dict[str, _Experiments]) -> Iterator[tuple[str, str, Experiment]]:
    """Yield column, row and the first seed's experiment; rows with a plus reuse another row's run and are skipped."""
    for name, experiments in columns.items():
        yield from ((name, row, group[0]) for row, group in experiments.items() if "+" not in row)


def _angles_of(plan: Plan, name: str, row: str, experiment: Experiment, out: Path) -> str:
    file = out.with_name(file_name(out.name, name, row, "angles"))
    title = f"{title_of(row)} on {name}, seed {experiment.training.seed}"
    return angles_picture(plan.runs / experiment.name, file, title)


def trained(plan: Plan, setting: str) -> dict[str, _Experiments]:
    """Group the experiments by column, and by printed column where a column has several."""
    groups: dict[str, tuple[str, str, _Experiments]] = {}
    for printed in plan.table.printed_columns:
        experiments = {row: list(cell.experiments) for row, cell in plan.find_cells(printed, setting).items()}
        first = experiments[plan.rows[0]][0]
        column = " ".join(filter(None, (first.column, first.variant)))
        groups.setdefault(first.name, (column, printed.title, experiments))
    columns = [column for column, _, _ in groups.values()]
    return {
        column if columns.count(column) == 1 else f"{column} {title}": experiments
        for column, title, experiments in groups.values()
    }


def _curves_of(plan: Plan, experiments: _Experiments, file: Path, name: str) -> Iterator[str]:
    """Yield a picture of the metric that the rows are judged by; none before the first validation."""
    curves = {row: [curve(plan.runs / each.name) for each in group] for row, group in experiments.items()}
    bands = "; bands show the range over seeds" if len(plan.seeds) > 1 else ""
    for metric in sorted({metric for group in curves.values() for metric, points in group if points}):
        lines = {row: [points for _, points in group if points] for row, group in curves.items()}
        drawn = {row: group for row, group in lines.items() if group}
        titles, caption = {row: title_of(row) for row in drawn}, f"{name}: validation {metric}{bands}."
        yield show_chart(drawn, titles, metric, file.with_name(file_name(file.name, metric)), caption)


def _speed_of(plan: Plan, experiments: _Experiments) -> dict[str, float]:
    """Return the seconds per update by row: the mean over seeds of each run's median."""
    known: Scores = {}
    for row, group in experiments.items():
        for each in group:
            seconds = seconds_per_update(plan.runs / each.name)
            if seconds is not None:
                known.setdefault(row, {})[each.training.seed] = seconds
    return means(known)
