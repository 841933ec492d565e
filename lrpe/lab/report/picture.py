"""Pictures as Vega-Lite specifications, drawn to SVG and PNG without a browser; one colour and one shape per method.

The paper's seven methods have the colours of Okabe and Ito, which colour-blind readers can tell apart. No twelve
colours have that property, so pictures of many methods show shapes too. Dark colours have a second one for dark pages.
"""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from lrpe.atomic import write_atomically
from lrpe.lab.experiments.methods import find_method

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


@dataclass(frozen=True)
class Look:
    """A colour, its replacement on dark pages, and a Vega symbol."""

    colour: str
    shape: str
    dark: str | None = None


LOOKS = {
    "base": Look("#000000", "circle", dark="#F2F0EA"),
    "rope": Look("#E69F00", "square"),
    "spe": Look("#56B4E9", "cross"),
    "per": Look("#009E73", "diamond"),
    "type1": Look("#CC79A7", "triangle-up"),
    "type2": Look("#D55E00", "triangle-down"),
    "type3": Look("#0072B2", "triangle-right"),
    "cosformer": Look("#999933", "triangle-left"),
    "pope": Look("#DDAA33", "triangle-up"),
    "hope": Look("#BB5566", "square"),
    "p-rope": Look("#B8860B", "cross"),
    "retnet": Look("#004488", "diamond", dark="#6FA0E0"),
    "lrpe-d": Look("#EE7733", "triangle-down"),
    "mamba3": Look("#33BBEE", "triangle-right"),
    "mixed": Look("#7CB342", "triangle-up"),
    "none": Look("#999999", "circle"),
    "softmax": Look("#332288", "square", dark="#9A8CF0"),
    "softmax-decay": Look("#7A5C2E", "diamond", dark="#C29A5B"),
    "recommended": Look("#882255", "cross", dark="#E0609B"),
    "spread": Look("#AD1457", "circle", dark="#F48FB1"),
    "spread-gate": Look("#C2185B", "square", dark="#F0709F"),
    "spread-conv": Look("#F06292", "diamond"),
    "spread-gate-conv": Look("#6A1B9A", "triangle-up", dark="#B97FDB"),
    "softmax-decay-gate-conv": Look("#4E342E", "triangle-right", dark="#B08D7F"),
    "hybrid": Look("#00695C", "triangle-left", dark="#4DB6A5"),
    "hybrid-gate-conv": Look("#558B2F", "cross"),
    "gated-gate-conv": Look("#00838F", "triangle-up", dark="#4DC6D2"),
    "selective-gate-conv": Look("#5D4B8C", "cross", dark="#A08CD8"),
    "softmax-gated-gate-conv": Look("#827717", "triangle-down"),
    "hybrid-gated-gate-conv": Look("#2E7D32", "circle", dark="#6FBF73"),
    "learned-decay": Look("#117733", "square", dark="#4CBB7A"),
    "gated": Look("#44AA99", "diamond"),
    "selective": Look("#AA4499", "triangle-up"),
    "selective-gated": Look("#661100", "triangle-down", dark="#D07050"),
    "switched-gated": Look("#1565C0", "circle", dark="#64A5F0"),
}
_SPARE = (
    Look("#6699CC", "diamond"),
    Look("#88CCEE", "square"),
    Look("#88884D", "triangle-up"),
    Look("#CC6677", "cross"),
)
BASES = {
    "householder": LOOKS["type2"],
    "identity": LOOKS["rope"],
    "odd-even": LOOKS["per"],
}  # rows of the ablation of P
TYPES = {"unitary": "type1", "orthogonal": "type2", "permutation": "type3"}  # the paper's type of each Λ


def look(name: str) -> Look:
    """Return the look of a method, of a product "basis*matrix" (that of its type), or of a basis.

    Methods and Λ registered by users get a spare colour, chosen by a hash of the name, so it is always the same.
    """
    known, looks = TYPES.get(name.partition("*")[2], name), LOOKS | BASES
    if known in looks:
        return looks[known]
    find_method(name)  # raises for an unknown name
    return _SPARE[crc32(name.encode()) % len(_SPARE)]


def ramp(count: int) -> list[str]:
    """Return ``count`` colours in a visible order, for example for layers."""
    if count == 1:
        return ["#0072B2"]
    stops = [(0x00, 0x72, 0xB2), (0xCC, 0x79, 0xA7), (0xE6, 0x9F, 0x00)]
    return [_between(stops, 2 * k / (count - 1)) for k in range(count)]


def _between(stops: Sequence[tuple[int, int, int]], position: float) -> str:
    """Return the colour at a position from 0 to 2, interpolated linearly between three stops."""
    first = min(int(position), 1)
    mixed = [round(a + (position - first) * (b - a)) for a, b in zip(stops[first], stops[first + 1], strict=True)]
    return "#" + "".join(f"{channel:02X}" for channel in mixed)


def dark_rules() -> str:
    """Return CSS rules that recolour the methods' marks on dark pages."""
    rules = [
        f'figure svg [{attribute}="{look.colour}"] {{ {attribute}: {look.dark}; }}'
        for look in LOOKS.values()
        if look.dark
        for attribute in ("fill", "stroke")
    ]
    return "@media (prefers-color-scheme: dark) {\n" + "\n".join(rules) + "\n}"
