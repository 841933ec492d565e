"""A static page of results: one self-contained file, with light and dark colours, for desktops and phones."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from lrpe.atomic import write_atomically
from lrpe.lab.report.html import element, facts, section, shared_style
from lrpe.lab.report.picture import Spec, as_svg, narrow, save_picture


def write_page(file: Path, title: str, parts: Sequence[str]) -> Path:
    """Write a page; ``parts`` are HTML."""
    body = "\n".join(filter(None, parts))
    text = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{shared_style()}</style>
</head>
<body>
<header><h1>{escape(title)}</h1></header>
<main>
{body}
</main>
</body>
</html>
"""
    write_atomically(file, text)
    return file


def picture(spec: Spec, file: Path, caption: str) -> str:
    """Save a picture as SVG and PNG and return it as an HTML figure; empty if it cannot be drawn."""
    save_picture(spec, file)
    return figure(spec, caption)


def figure(spec: Spec, caption: str) -> str:
    """Return a picture as an HTML figure; empty if it cannot be drawn.

    It holds a second, narrow drawing, because on a phone the letters of the first would be too small.
    """
    return _drawn(caption, wide=spec, narrow=narrow(spec))


def scrolled(spec: Spec, caption: str) -> str:
    """Return a picture that cannot be made narrow; on a phone it scrolls in its own box."""
    return _drawn(caption, scrolled=spec)


def _drawn(caption: str, **drawings: Spec) -> str:
    """Return a figure with one drawing per screen width; style.css shows the one that fits."""
    found = {kind: as_svg(spec) for kind, spec in drawings.items()}
    shown = [element("div", svg, class_=kind, role="img", aria_label=caption) for kind, svg in found.items() if svg]
    return element("figure", f"{''.join(shown)}<figcaption>{escape(caption)}</figcaption>") if shown else ""


def pictures(found: Iterable[str], small: bool = False) -> str:
    """Return figures side by side where there is room."""
    drawn = list(filter(None, found))
    return element("div", "\n".join(drawn), class_="figures small" if small else "figures") if drawn else ""


def beside(table: str, drawn: str) -> str:
    """Return a table and its pictures, side by side where there is room."""
    return element("div", element("div", table, class_="scores") + drawn, class_="beside")


def provenance(mark: dict[str, Any], command: str, *more: str) -> str:
    """Return the section with the command, date, commit and machine; ``more`` is HTML below it."""
    changed = ", with uncommitted changes" if mark["dirty"] else ""
    versions = ", ".join(f"{name} {number or 'missing'}" for name, number in mark["versions"].items())
    known = {
        "Command": command,
        "Date": mark["date"],
        "Commit": f"{(mark['commit'] or 'unknown')[:12]}{changed}",
        "Machine": f"{mark['machine']}, {mark['system']}",
        "Software": f"Python {mark['python']}, {versions}",
    }
    return section("How this page was made", [facts(known), *more])
