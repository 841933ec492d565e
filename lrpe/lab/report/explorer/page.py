"""The explorer as one HTML file, with style, data, Vega and scripts inside: it needs no network and no server."""

import importlib
from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from lrpe.atomic import write_atomically
from lrpe.errors import LrpeError, require
from lrpe.lab.report.explorer.page_data import page_data
from lrpe.lab.report.html import code_in_script, fill, json_in_script, shared_style

SCRIPTS = (  # in order of use
    "angles.js",
    "bases.js",
    "position_matrices.js",
    "encoding.js",
    "eigenvalues.js",
    "query_and_key.js",
    "choices.js",
    "numbers.js",
    "matrix_image.js",
    "pictures/kernel.js",
    "pictures/scores.js",
    "pictures/features.js",
    "pictures/plane.js",
    "pictures/path.js",
    "pictures/spectrum.js",
    "pictures/delta.js",
    "controls.js",
    "charts.js",
    "page.js",
)


def write_explorer(file: Path, learned: Sequence[dict[str, Any]] = ()) -> Path:
    """Write the page and return its path; ``learned`` are runs, as returned by ``read_run``."""
    require(
        file.suffix == ".html", f"The explorer's file name must end in .html, such as explorer.html; got {file.name!r}."
    )
    require(file.parent.is_dir(), f"The explorer's folder must exist; got {str(file.parent)!r}.")
    require(not file.is_dir(), f"The explorer is written to a file; {str(file)!r} is a folder.")
    write_atomically(file, explorer(learned))
    return file


def explorer(learned: Sequence[dict[str, Any]] = ()) -> str:
    parts = {
        "/* style */": shared_style() + read("explorer.css"),
        "/* data */": json_in_script(page_data(list(learned))),
        "/* vega */": code_in_script(vega()),
        "/* code */": code_in_script("\n".join(['"use strict";', *map(read, SCRIPTS)])),
        "<!-- version -->": escape(version("lrpe")),
    }
    return fill(read("page.html"), parts)


def read(name: str) -> str:
    return files("lrpe.lab.report.explorer").joinpath(name).read_text(encoding="utf-8")


def vega() -> str:
    """Return the JavaScript of Vega-Lite and Vega, from the copy in vl-convert."""
    try:
        vl_convert: Any = importlib.import_module("vl_convert")
    except ImportError:
        raise LrpeError("The explorer needs vl-convert-python: pip install 'lrpe[report]'") from None
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
