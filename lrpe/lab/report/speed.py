"""The paper's table of speed, measured: printed, written in every format, and as a page."""

from pathlib import Path
from typing import Any

from lrpe.atomic import write_atomically
from lrpe.lab.experiments.paper import SPEED, printed
from lrpe.lab.report.benchmark import speed_chart
from lrpe.lab.report.formats import as_html, as_text, write_formats
from lrpe.lab.report.html import bullets, folded, preformatted, section
from lrpe.lab.report.page import beside, picture, pictures, provenance, write_page
from lrpe.lab.report.table import Column, as_data
from lrpe.lab.stamp import describe
from lrpe.serialization import to_json

_TITLE = "Training steps of the bidirectional language model, relative to Base"
_NOTES = (
    "Fair: one normaliser for every row. The model is small and runs on a processor, the paper's ran on GPUs: rows "
    "can be compared with each other, and with the paper's with care.",
    "Figures are medians; fair.json has their quartiles, the memory of a step, and the conditions of the measurement.",
)


def report_speed(result: dict[str, Any], measured: str, out: Path, command: str) -> tuple[str, Path]:
    """Write what ``lrpe bench train`` found to a folder, in the files of every table; the text, and where the page is.

    ``measured`` is the measurement's own text, which stands on the page.
    """
    rows, columns = {row["method"]: row["title"] for row in result["rows"]}, [_column_of(result)]
    ranked = [row for row in rows if row != "base"]  # which has nothing to pay for
    write_formats(out / "fair", rows, columns, ranked)
    write_atomically(out / "fair.json", to_json(result) + "\n")
    data = {"command": command, "stamp": result["stamp"], "settings": {"fair": as_data(rows, columns)}}
    write_atomically(out / "table.json", to_json(data) + "\n")
    notes = [*_quick_note(result), _noise_note(result), *_NOTES]
    text = "\n\n".join([_TITLE, as_text(rows, columns, ranked), "\n".join([*notes, describe(result["stamp"])])])
    write_atomically(out / "table.txt", f"{text}\n\nMade by: {command}\n")
    made = provenance(result["stamp"], command, folded("The measurement", preformatted(measured)))
    drawn = picture(speed_chart(result), out / "speed", "Training steps relative to Base's, with their quartiles.")
    parts = [
        section("Setting: fair", [beside(as_html(rows, columns, ranked), pictures([drawn]))]),
        section("How to read the figures", [bullets(notes)]),
    ]
    return text, write_page(out / "index.html", _TITLE, [*parts, made])


def _column_of(result: dict[str, Any]) -> Column:
    """Base is 1, whatever it came out at beside itself."""
    speeds = {row["method"]: row["speed"]["ratio"] for row in result["rows"]} | {"base": 1.0}
    return Column("relative speed", speeds, 2, "higher", paper=printed(SPEED, 0))


def _noise_note(result: dict[str, Any]) -> str:
    (base,) = [row["speed"]["ratio"] for row in result["rows"] if row["method"] == "base"]
    return f"Base measured beside itself came out at {base:.2f}; a difference of that size between rows is noise."


def _quick_note(result: dict[str, Any]) -> list[str]:
    return ["Quick: tiny shapes, which show that it runs and say nothing about speed."] if result["quick"] else []
