"""The report of ``lrpe table speed``: text, Markdown, LaTeX, JSON and a page."""

from pathlib import Path
from typing import Any

from lrpe.atomic import write_atomically
from lrpe.lab.experiments.paper import SPEED, read_column
from lrpe.lab.report.benchmark import speed_chart
from lrpe.lab.report.formats import as_html, as_text, write_formats
from lrpe.lab.report.html import bullets, folded, preformatted, section
from lrpe.lab.report.page import beside, picture, pictures, provenance, write_page
from lrpe.lab.report.table import Column, as_data
from lrpe.lab.stamp import describe
from lrpe.serialization import to_json

_TITLE = "Training speed of the bidirectional language model, relative to Base"
_NOTES = (
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
    notes = [*_quick_note(result), _noise_note(result), *_NOTES]
    text = "\n\n".join([_TITLE, as_text(rows, columns, ranked), "\n".join([*notes, describe(result["stamp"])])])
    write_atomically(out / "table.txt", f"{text}\n\nMade by: {command}\n")
    made = provenance(result["stamp"], command, folded("Measurement", preformatted(measured)))
    drawn = picture(speed_chart(result), out / "speed", "Training speed relative to Base, with quartiles.")
    parts = [
        section("Setting: fair", [beside(as_html(rows, columns, ranked), pictures([drawn]))]),
        section("How to read the figures", [bullets(notes)]),
    ]
    return text, write_page(out / "index.html", _TITLE, [*parts, made])


def _column_of(result: dict[str, Any]) -> Column:
    """Return the column of speeds; Base is 1 by definition, not as measured against itself."""
    speeds = {row["method"]: row["speed"]["ratio"] for row in result["rows"]} | {"base": 1.0}
    return Column("relative speed", speeds, 2, "higher", paper=read_column(SPEED, 0))


def _noise_note(result: dict[str, Any]) -> str:
    (base,) = [row["speed"]["ratio"] for row in result["rows"] if row["method"] == "base"]
    return f"Base timed against itself gave {base:.2f}; differences of that size between rows are noise."


def _quick_note(result: dict[str, Any]) -> list[str]:
    return (
        ["Quick: with these tiny shapes the figures show that the benchmark runs; they say nothing about speed."]
        if result["quick"]
        else []
    )
