"""Charts of benchmark results, and the report of ``lrpe table speed``."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lrpe.atomic import write_atomically
from lrpe.errors import require, require_extras
from lrpe.lab.benchmarks.lines import digits
from lrpe.lab.experiments.paper import SPEED, read_column
from lrpe.lab.report.notes import summarize
from lrpe.lab.report.page import (
    beside,
    bullets,
    embed_picture,
    embed_scrolled,
    folded,
    picture,
    pictures,
    preformatted,
    provenance,
    section,
    write_page,
)
from lrpe.lab.report.page_table import as_html
from lrpe.lab.report.picture import SOFT, Spec, as_png, as_svg, powers_of_ten, superscript
from lrpe.lab.report.table import FigureColumn, as_data, as_text, write_formats
from lrpe.lab.stamp import describe
from lrpe.serialization import to_json

_KINDS = (".png", ".svg", ".html")
_PASS, _SHORT = "#0072B2", "#D55E00"  # safe for colour-blind readers; the shapes differ as well
_SIDES = ["#0072B2", "#56B4E9", "#D55E00", "#CC79A7"]

_Result = dict[str, Any]


def prepare_plot(path: Path) -> None:
    """Raise ``LrpeError`` if the chart could not be drawn; called before the measurement, which can take minutes."""
    require(path.suffix in _KINDS, f"--plot must end in {', '.join(_KINDS)}; got {path.name!r}.")
    require_extras("A plot", "report")


def save_plot(path: Path, result: _Result) -> None:
    """Draw the result of a benchmark as PNG, SVG or a self-contained HTML page."""
    title, spec = _TITLES[result["benchmark"]], _CHARTS[result["benchmark"]](result)
    if path.suffix == ".html":
        drawn = (embed_scrolled if _CHARTS[result["benchmark"]] is _goal_chart else embed_picture)(
            spec, title
        )  # long row names do not fit a phone
        summary = section("Summary", [bullets(_summarize(result))])
        write_page(path, title, [summary, section("Measurement", [drawn, bullets(_about(result))])])
        return
    titled = spec | {"title": {"text": title, "subtitle": _about(result)}}
    write_atomically(path, as_png(titled) if path.suffix == ".png" else as_svg(titled) or "")


def _summarize(result: _Result) -> list[str]:
    """Return how many goals are met, and a sentence for each that is not."""
    verdicts = [line for line in result["lines"] if line["goal"] is not None]
    if not verdicts:
        return ["No figure has a goal."]
    short = [line for line in verdicts if line["verdict"] != "pass"]
    why = {"short": "missed", "missing": "not measured"}
    missed = [f"{line['row']}, {line['at']}: {why[line['verdict']]}." for line in short]
    return [f"{len(verdicts) - len(short)} of {len(verdicts)} goals are met.", *missed]


def _goal_chart(result: _Result) -> Spec:
    """Draw figure ÷ goal, one mark per goal: left of 1 the goal is met."""
    rows = [mark_of(line) for line in result["lines"] if line["goal"] is not None]
    x = _distance([row for row in rows if row["verdict"] != "missing"])
    y = {"field": "name", "type": "nominal", "sort": [row["name"] for row in rows], "title": None}
    y |= {"axis": {"labelLimit": 520, "grid": False, "ticks": False, "labelPadding": 8}}
    goal = {"mark": {"type": "rule", "strokeDash": [4, 4], "color": SOFT}, "data": {"values": [{"goal": 1}]}}
    label = {  # to the right of the plot, where no mark can cross it
        "mark": {"type": "text", "align": "left", "dx": 12, "color": SOFT, "fontSize": 12},
        "encoding": {"x": {"value": "width"}, "text": {"field": "label"}},
    }
    layers = [goal | {"encoding": {"x": x | {"field": "goal"}, "y": None}}, *_goal_marks(x), label]
    return {"width": 480, "height": {"step": 24}, "data": {"values": rows}, "encoding": {"y": y}, "layer": layers}


def _distance(measured: list[dict[str, Any]]) -> Spec:
    """Return the axis of figure ÷ goal, wide enough for all marks and for 1."""
    ends = [1.0, *(row[end] for row in measured for end in ("low", "high"))]
    scale = {"type": "log", "domain": [min(ends) / 1.25, max(ends) * 1.25], "nice": False}
    axis = {"values": [factor * 10.0**power for power in range(-3, 5) for factor in (1, 2, 5)], "format": "~g"}
    title = "figure ÷ goal (goal ÷ figure where higher is better); left of the dashed line, the goal is met"
    return {"type": "quantitative", "title": title, "scale": scale, "axis": axis}


def _goal_marks(x: Spec) -> Iterator[Spec]:
    """Yield the layers of quartiles and medians."""
    verdict = {"field": "verdict", "type": "nominal", "title": None, "legend": {"orient": "top", "symbolOpacity": 1}}
    colour = verdict | {"scale": {"domain": ["pass", "short"], "range": [_PASS, _SHORT]}}
    shape = verdict | {"scale": {"domain": ["pass", "short"], "range": ["circle", "triangle-up"]}}
    known = {"transform": [{"filter": "datum.verdict != 'missing'"}]}
    yield known | {
        "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.4},
        "encoding": {"x": x | {"field": "low"}, "x2": {"field": "high"}, "color": colour},
    }
    yield known | {
        "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
        "encoding": {"x": x | {"field": "relative"}, "color": colour, "shape": shape},
    }


def mark_of(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line's mark; below 1 the goal is met, also where higher is better."""
    name, goal = f"{line['row']}, {line['at']}", line["goal"]
    if line["figure"] is None:
        return {"name": name, "verdict": "missing", "label": "missing"}
    low, high = (line[end] if line[end] is not None else line["figure"] for end in ("low", "high"))
    over = (lambda figure: goal / figure) if line.get("better") == "higher" else (lambda figure: figure / goal)
    ends = sorted([over(low), over(high)])
    named = {"name": name, "verdict": line["verdict"], "label": f"{digits(line['figure'])}, goal {goal:g}"}
    return named | {"relative": over(line["figure"]), "low": ends[0], "high": ends[1]}


def _length_chart(result: _Result) -> Spec:
    """Draw time and memory against length on logarithmic axes: the slope is the exponent."""
    panels = []
    for field, unit, title in (("seconds", "s", "time"), ("bytes", "B", "memory above the baseline")):
        points = [point for point in result["points"] if point[field]]
        marks = powers_of_ten(point[field] for point in points) if points else {"values": [1]}
        axis = {"values": marks["values"], "labelExpr": f"format(datum.value, '~s') + '{unit}'"}
        scale = {"type": "log", "domain": [marks["values"][0], marks["values"][-1]], "nice": False}
        y = {"field": field, "type": "quantitative", "title": title, "axis": axis, "scale": scale}
        panels.append(_panel(result, points, y))
    return {"hconcat": panels, "spacing": 40}


def _panel(result: _Result, points: list[dict[str, Any]], y: Spec) -> Spec:
    sides, lengths = list(result["exponents"]), sorted({point["length"] for point in result["points"]})
    names = ", ".join(f"'{length}': '2{superscript(length.bit_length() - 1)}'" for length in lengths)
    x = {"field": "length", "type": "quantitative", "title": "tokens"}
    x |= {"scale": {"type": "log", "base": 2, "nice": False, "padding": 8}}
    x |= {"axis": {"values": lengths, "labelExpr": f"({{{names}}})[datum.value]", "grid": False}}
    side = {"field": "side", "type": "nominal", "title": None, "legend": {"orient": "top", "columns": 2}}
    colour = side | {"scale": {"domain": sides, "range": _SIDES}}
    return {
        "width": 340,
        "height": 300,
        "data": {"values": points},
        "encoding": {"x": x, "y": y, "color": colour},
        "layer": [
            {"mark": {"type": "line"}},
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                "encoding": {"shape": side | {"scale": {"domain": sides}}},
            },
        ],
    }


def speed_chart(result: _Result) -> Spec:
    """Draw training steps ÷ Base's: ours with quartiles, the paper's, and the goals."""
    kinds = ["ours", "paper", "goal"]
    kind = {"field": "kind", "type": "nominal", "title": None, "legend": {"orient": "top"}}
    colour = kind | {"scale": {"domain": kinds, "range": [_PASS, "#999999", _SHORT]}}
    shape = kind | {"scale": {"domain": kinds, "range": ["circle", "diamond", "stroke"]}}
    x = {"type": "quantitative", "title": "training steps ÷ Base's (higher is better)", "axis": {"format": ".2f"}}
    x |= {"scale": {"zero": False, "nice": False, "padding": 20}}
    y = {"field": "name", "type": "nominal", "sort": [row["title"] for row in result["rows"]], "title": None}
    return {
        "width": 520,
        "height": {"step": 30},
        "data": {"values": speed_marks(result)},
        "encoding": {"y": y | {"axis": {"grid": True, "ticks": False, "labelPadding": 8}}},
        "layer": [
            {
                "transform": [{"filter": "datum.kind == 'ours'"}],
                "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.4, "color": _PASS},
                "encoding": {"x": x | {"field": "low"}, "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "size": 110, "strokeWidth": 2, "opacity": 1, "angle": 90},
                "encoding": {"x": x | {"field": "speed"}, "fill": colour, "stroke": colour, "shape": shape},
            },
        ],
    }


def speed_marks(result: _Result) -> list[dict[str, Any]]:
    """Return three marks per row: ours, the paper's, and the goal if there is one."""
    goals = [line["goal"] for line in result["lines"] if line["better"] == "higher"]
    marks = []
    for row, goal in zip(result["rows"], goals, strict=True):
        speed, of_row = row["speed"], {"name": row["title"]}
        marks.append(of_row | {"kind": "ours", "speed": speed["ratio"], "low": speed["low"], "high": speed["high"]})
        marks.append(of_row | {"kind": "paper", "speed": row["paper"]})
        marks += [of_row | {"kind": "goal", "speed": goal}] if goal is not None else []
    return marks


def _slopes(exponents: dict[str, float]) -> str:
    return ", ".join(f"{side} n^{exponent:.2f}" for side, exponent in exponents.items()) or "unknown"


def _about(result: _Result) -> list[str]:
    """Return the conditions of the measurement: fitted exponents if any, machine, threads and date."""
    mark, threads = result["stamp"], result["settings"]["threads"]
    fitted = (("time", "exponents"), ("memory", "memory_exponents")) if "exponents" in result else ()
    lines = [f"{what}: {_slopes(result[key])}" for what, key in fitted]
    lines.append(f"{mark['machine']}; {threads} thread{'s' if threads > 1 else ''}; {mark['date']}")
    return [*lines, "Quick run with tiny shapes: says nothing about speed"] if result["quick"] else lines


_CHARTS: dict[str, Callable[[_Result], Spec]] = {
    "attention": _goal_chart,
    "block": _goal_chart,
    "context": _goal_chart,
    "decode": _goal_chart,
    "encoding": _goal_chart,
    "language": _goal_chart,
    "length": _length_chart,
    "loop": _goal_chart,
    "train": speed_chart,
}
_TITLES = {name: f"{name.capitalize()} benchmark: figures against goals" for name in _CHARTS} | {
    "length": "Causal forward pass: time and memory against length",
    "train": "Training speed relative to Base",
}


_SPEED_TITLE = "Training speed of the bidirectional language model, relative to Base"
_SPEED_NOTES = (
    "Fair: every row has the same normaliser. Our model is small and runs on a CPU; the paper's ran on GPUs. Compare "
    "rows with each other, and with the paper's only with care.",
    "Figures are medians; fair.json has quartiles, memory per step and the conditions of the measurement.",
)


def report_speed(result: dict[str, Any], measured: str, out: Path, command: str) -> tuple[str, Path]:
    """Write the result of ``lrpe bench train`` to a folder as a table; return its text and the page's path.

    ``measured`` is the benchmark's own text, which the page includes.
    """
    rows, columns = {row["method"]: row["title"] for row in result["rows"]}, [_column_of(result)]
    ranked = [row for row in rows if row != "base"]  # Base is the reference, not a contestant
    write_formats(out / "fair", rows, columns, ranked)
    write_atomically(out / "fair.json", to_json(result) + "\n")
    data = {"command": command, "stamp": result["stamp"], "settings": {"fair": as_data(rows, columns)}}
    write_atomically(out / "table.json", to_json(data) + "\n")
    notes = [*_quick_note(result), _noise_note(result), *_SPEED_NOTES]
    text = "\n\n".join([_SPEED_TITLE, as_text(rows, columns, ranked), "\n".join([*notes, describe(result["stamp"])])])
    write_atomically(out / "table.txt", f"{text}\n\nMade by: {command}\n")
    made = provenance(result["stamp"], command, folded("Measurement", preformatted(measured)))
    drawn = picture(speed_chart(result), out / "speed", "Training speed relative to Base, with quartiles.")
    shows = [*summarize(rows, columns[0], ranked), *_quick_note(result), _noise_note(result)]
    parts = [
        section("Summary", [bullets(shows)]),
        section("Setting: fair", [beside(as_html(rows, columns, ranked), pictures([drawn]))]),
        section("How to read the figures", [bullets(_SPEED_NOTES)]),
    ]
    return text, write_page(out / "index.html", _SPEED_TITLE, [*parts, made])


def _column_of(result: dict[str, Any]) -> FigureColumn:
    """Return the column of speeds; Base is 1 by definition, not as measured against itself."""
    speeds = {row["method"]: row["speed"]["ratio"] for row in result["rows"]} | {"base": 1.0}
    return FigureColumn("relative speed", speeds, 2, "higher", paper=read_column(SPEED, 0))


def _noise_note(result: dict[str, Any]) -> str:
    (base,) = [row["speed"]["ratio"] for row in result["rows"] if row["method"] == "base"]
    return f"Base timed against itself gave {base:.2f}; differences of that size between rows are noise."


def _quick_note(result: dict[str, Any]) -> list[str]:
    return (
        ["Quick: with these tiny shapes the figures show that the benchmark runs; they say nothing about speed."]
        if result["quick"]
        else []
    )
