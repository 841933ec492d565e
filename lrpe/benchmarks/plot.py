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
    slopes = ", ".join(f"{side} n^{exponent:.2f}" for side, exponent in result["exponents"].items())
    title = alt.Title("A causal forward pass as the text grows", subtitle=[f"time: {slopes}", *subtitle(result)])
    return alt.hconcat(*panels).properties(title=title)


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
}
