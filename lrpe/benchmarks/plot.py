"""A result as a picture: how far each figure is from its goal, and what a longer text costs."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lrpe.benchmarks.lines import digits
from lrpe.errors import LrpeError, require

KINDS = (".png", ".svg", ".html")
PASS, SHORT = "#0072B2", "#D55E00"  # apart for every kind of eye; the shapes differ as well
SIDES = ["#0072B2", "#56B4E9", "#D55E00", "#CC79A7"]


def prepare_plot(path: Path) -> None:
    """Better to find before the measurement than after it that the picture cannot be drawn."""
    require(path.suffix in KINDS, f"A plot is written as {', '.join(KINDS)}; got {path.name!r}.")
    try:
        for module in ("altair", "vl_convert"):
            importlib.import_module(module)
    except ImportError:
        raise LrpeError("A plot needs altair and vl-convert-python: pip install 'lrpe[report]'") from None


def save_plot(path: Path, result: dict[str, Any]) -> None:
    """Draw the result of a benchmark; an HTML page holds all that it needs."""
    chart, options = CHARTS[result["benchmark"]](result), {}
    if path.suffix == ".html":
        options = {"inline": True}
    elif path.suffix == ".png":
        options = {"ppi": 144}
    chart.save(str(path), **options)


def goal_chart(result: dict[str, Any]):
    """A mark a goal, at figure ÷ goal: what is left of 1 passes."""
    import altair as alt

    lines = [line for line in result["lines"] if line["goal"] is not None]
    rows = [mark_of(line) for line in lines]
    order = [row["name"] for row in rows]
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("name:N", sort=order, title=None, axis=alt.Axis(labelLimit=520))
    )
    x = alt.X("relative:Q", scale=alt.Scale(type="log", nice=False, padding=20), title="figure ÷ goal")
    spread = base.mark_rule(strokeWidth=3, opacity=0.4).encode(
        x=alt.X("low:Q", title="figure ÷ goal"), x2="high:Q", color=verdict_color(alt)
    )
    shape = alt.Shape("verdict:N", scale=alt.Scale(domain=["pass", "short"], range=["circle", "triangle-up"]))
    points = base.mark_point(size=90, filled=True, opacity=1).encode(x=x, color=verdict_color(alt), shape=shape)
    labels = base.mark_text(align="left", dx=10).encode(x=alt.X("edge:Q", title="figure ÷ goal"), text="label:N")
    goal = alt.Chart(alt.Data(values=[{"relative": 1}])).mark_rule(strokeDash=[4, 4]).encode(x="relative:Q")
    title = alt.Title(f"{result['benchmark'].capitalize()}: each figure beside its goal", subtitle=subtitle(result))
    return (goal + spread + points + labels).properties(width=480, height=22 * len(rows), title=title)


def mark_of(line: dict[str, Any]) -> dict[str, Any]:
    name = f"{line['row']}, {line['at']}"
    if line["figure"] is None:
        return {"name": name, "verdict": "missing", "label": "missing", "relative": 1, "edge": 1}
    low, high = (line[end] if line[end] is not None else line["figure"] for end in ("low", "high"))
    return {
        "name": name,
        "verdict": line["verdict"],
        "label": f"{digits(line['figure'])} of {line['goal']:g}",
        "relative": line["figure"] / line["goal"],
        "low": low / line["goal"],
        "high": high / line["goal"],
        "edge": high / line["goal"],
    }


def verdict_color(alt: Any):
    return alt.Color("verdict:N", scale=alt.Scale(domain=["pass", "short"], range=[PASS, SHORT]), title=None)


def length_chart(result: dict[str, Any]):
    """Time and memory against length, both axes logarithmic: a straight line's slope is the exponent."""
    import altair as alt

    sides, lengths = list(result["exponents"]), sorted({point["length"] for point in result["points"]})
    powers = alt.Axis(values=lengths, labelExpr="'2^' + round(log(datum.value) / LN2)", grid=False)
    panels = []
    for field, scale, title in (("seconds", 1.0, "seconds"), ("bytes", 2**-30, "GiB above the baseline")):
        values = [
            {"side": point["side"], "tokens": point["length"], "value": point[field] * scale}
            for point in result["points"]
            if point[field]
        ]
        panel = alt.Chart(alt.Data(values=values)).encode(
            x=alt.X("tokens:Q", scale=alt.Scale(type="log", base=2, nice=False), axis=powers),
            y=alt.Y("value:Q", scale=alt.Scale(type="log", nice=False), title=title),
            color=alt.Color("side:N", scale=alt.Scale(domain=sides, range=SIDES), title=None),
            shape=alt.Shape("side:N", scale=alt.Scale(domain=sides), title=None),
        )
        panels.append((panel.mark_line() + panel.mark_point(filled=True, size=60)).properties(width=380, height=320))
    fitted = [f"{what}: {slopes(result[key])}" for what, key in (("time", "exponents"), ("memory", "memory_exponents"))]
    title = alt.Title("A causal forward pass as the text grows", subtitle=[*fitted, *subtitle(result)])
    return alt.hconcat(*panels).properties(title=title)


def slopes(exponents: dict[str, float]) -> str:
    return ", ".join(f"{side} n^{exponent:.2f}" for side, exponent in exponents.items()) or "unknown"


def speed_chart(result: dict[str, Any]):
    """Our steps ÷ Base's with their quartiles; the paper's, and the goals."""
    import altair as alt

    kinds, axis = ["ours", "paper", "goal"], "training steps ÷ Base's"
    colours = alt.Scale(domain=kinds, range=[PASS, "#999999", SHORT])
    shapes = alt.Scale(domain=kinds, range=["circle", "diamond", "stroke"])
    names = [row["title"] for row in result["rows"]]
    base = alt.Chart(alt.Data(values=speed_marks(result))).encode(y=alt.Y("name:N", sort=names, title=None))
    spread = base.mark_rule(strokeWidth=3, opacity=0.4, color=PASS).encode(x=alt.X("low:Q", title=axis), x2="high:Q")
    points = base.mark_point(size=110, strokeWidth=2, opacity=1, angle=90).encode(
        x=alt.X("speed:Q", scale=alt.Scale(zero=False, nice=False, padding=20), title=axis),
        fill=alt.Fill("kind:N", scale=colours, title=None),
        stroke=alt.Stroke("kind:N", scale=colours, title=None),
        shape=alt.Shape("kind:N", scale=shapes, title=None),
    )
    title = alt.Title("Training steps relative to Base's: more is better", subtitle=subtitle(result))
    return (spread + points).properties(width=480, height=28 * len(names), title=title)


def speed_marks(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Three marks a row: ours, the paper's, and the goal if there is one."""
    goals = [line["goal"] for line in result["lines"] if line["better"] == "higher"]
    marks = []
    for row, goal in zip(result["rows"], goals, strict=True):
        speed, of_row = row["speed"], {"name": row["title"]}
        marks.append(of_row | {"kind": "ours", "speed": speed["ratio"], "low": speed["low"], "high": speed["high"]})
        marks.append(of_row | {"kind": "paper", "speed": row["paper"]})
        marks += [of_row | {"kind": "goal", "speed": goal}] if goal is not None else []
    return marks


def subtitle(result: dict[str, Any]) -> list[str]:
    mark = result["stamp"]
    threads = result["settings"]["threads"]
    lines = [f"{mark['machine']}; {threads} thread{'s' if threads > 1 else ''}; {mark['date']}"]
    return [*lines, "quick: tiny shapes, which say nothing about speed"] if result["quick"] else lines


CHARTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "attention": goal_chart,
    "block": goal_chart,
    "decode": goal_chart,
    "encoding": goal_chart,
    "length": length_chart,
    "loop": goal_chart,
    "train": speed_chart,
}
