"""Pictures as Vega-Lite specifications, drawn to SVG and PNG without a browser."""

import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lrpe.atomic import write_atomically

Spec = dict[str, Any]

_INK, SOFT, _LINE = "#1c1d1f", "#55585e", "#d9d9d4"  # style.css replaces these by the colours of the page
_NARROW = 330  # pixels: a phone's width, labels included
# Fonts of equal letter widths: vl-convert measures text here, and it must be as wide in the reader's browser.
_FONT = "Arial, Helvetica, Liberation Sans, sans-serif"
_LEGEND = {"title": None, "labelColor": _INK, "labelFontSize": 13, "labelFont": _FONT, "labelLimit": 260}
_LEGEND |= {"columnPadding": 28}
_AXIS = {"domainColor": _LINE, "gridColor": _LINE, "tickColor": _LINE, "gridOpacity": 0.7, "labelOverlap": True}
_AXIS |= {"labelColor": SOFT, "labelFontSize": 12, "labelFont": _FONT, "labelFlush": False}
_AXIS |= {"titleColor": SOFT, "titleFontSize": 12, "titleFont": _FONT, "titleFontWeight": "normal", "titlePadding": 10}
_TITLE = {"anchor": "start", "offset": 12, "fontSize": 15, "color": _INK, "subtitleFontSize": 12, "subtitleColor": SOFT}
_CONFIG = {
    "font": _FONT,
    "view": {"stroke": None},
    "axis": _AXIS,
    "legend": _LEGEND,
    "title": _TITLE,
}


def as_svg(spec: Spec) -> str | None:
    """Return the picture as SVG, or None without vl-convert (pip install 'lrpe[report]')."""
    try:
        import vl_convert
    except ImportError:
        return None
    return vl_convert.vegalite_to_svg(_apply_theme(spec))


def save_picture(spec: Spec, file: Path) -> list[Path]:
    """Write ``file`` with the suffixes .svg and .png; write nothing without vl-convert."""
    svg = as_svg(spec)
    if svg is None:
        return []
    write_atomically(_with_ending(file, ".svg"), svg)
    write_atomically(_with_ending(file, ".png"), as_png(spec))
    return [_with_ending(file, ".svg"), _with_ending(file, ".png")]


def as_png(spec: Spec) -> bytes:
    import vl_convert

    return vl_convert.vegalite_to_png(_apply_theme(spec), scale=2)


def narrow(spec: Spec) -> Spec:
    """Return the picture for a phone, with the legend below."""
    if "hconcat" in spec:
        return {"vconcat": [panel | {"width": _NARROW - 80} for panel in spec["hconcat"]]}
    legend = _LEGEND | {"orient": "bottom", "columns": 3}
    return spec | {"width": _NARROW, "autosize": {"type": "fit-x", "contains": "padding"}, "config": {"legend": legend}}


def file_name(*parts: str) -> str:
    """Return a file name made of these words, with every other character than letters, digits and dots as a hyphen."""
    kept = (re.sub(r"[^\w.]+", "-", part.replace("*", "-times-"), flags=re.ASCII).strip("-.")[:60] for part in parts)
    return "-".join(filter(None, kept))


def powers_of_ten(values: Iterable[float]) -> Spec:
    """Return a logarithmic axis for positive values, with ticks at the powers of ten around them."""
    exponents = [math.log10(value) for value in values]
    shown = range(math.floor(min(exponents)), math.ceil(max(exponents)) + 1)
    names = ", ".join(f"'{k}': '10{superscript(k)}'" for k in shown)
    return {"values": [10.0**k for k in shown], "labelExpr": f"({{{names}}})[round(log(datum.value) / LN10)]"}


def superscript(number: int) -> str:
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _apply_theme(spec: Spec) -> Spec:
    schema = {"$schema": "https://vega.github.io/schema/vega-lite/v6.json", "background": "white", "padding": 8}
    whole = schema | spec | {"config": _CONFIG | spec.get("config", {})}
    # Vega puts titles into expressions, and its parser fails at these two line separators.
    return json.loads(json.dumps(whole, ensure_ascii=False).translate({0x2028: " ", 0x2029: " "}))


def _with_ending(file: Path, ending: str) -> Path:
    """Append a suffix; ``with_suffix`` would replace what follows a dot in the name, as in 0.5."""
    return file.with_name(file.name + ending)
