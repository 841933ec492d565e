"""A static page of results: one self-contained file, with light and dark colours, for desktops and phones.

Names of runs, rows and files can hold any character, so every page is written with these functions, which escape text.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from lrpe.atomic import write_atomically
from lrpe.lab.report.picture import Spec, as_svg, dark_rules, narrow, save_picture

# Characters that can end a script, open a comment in it, or (U+2028, U+2029) end a line of JavaScript. In JSON they
# occur only inside strings, where an escape means the same character.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def json_in_script(value: Any) -> str:
    """Return the value as JSON for a ``<script>``, escaped so that no string can end the script."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).translate(_ESCAPES)


def code_in_script(code: str) -> str:
    """Return JavaScript for a ``<script>``; ``</script`` and ``<!--`` get a backslash, harmless in strings."""
    return re.sub(r"<(?=/script|!--)", r"<\\", code, flags=re.IGNORECASE)


def fill(template: str, parts: Mapping[str, str]) -> str:
    """Replace each mark of the template by its part, in one pass, so that marks inside parts are left alone."""
    return re.sub("|".join(map(re.escape, parts)), lambda mark: parts[mark[0]], template)


def shared_style() -> str:
    """Return the style sheet of every page."""
    return f"{_read('style.css')}\n{dark_rules()}"


def _read(name: str) -> str:
    return files("lrpe.lab.report").joinpath(name).read_text(encoding="utf-8")


def element(name: str, content: str, **attributes: str) -> str:
    """Return an element around HTML content; attributes are escaped, and ``class_`` means ``class``."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return f"<{name}{written}>{content}</{name}>"


def heading(text: str, level: int = 2) -> str:
    return element(f"h{level}", escape(text))


def paragraph(text: str) -> str:
    return element("p", escape(text))


def bullets(texts: Iterable[str]) -> str:
    return element("ul", "\n".join(element("li", escape(text)) for text in texts))


def section(title: str, parts: Iterable[str]) -> str:
    """Return a card with a title."""
    return element("section", "\n".join([heading(title), *filter(None, parts)]))


def facts(values: Mapping[str, str]) -> str:
    """Return names and values in two columns."""
    return element(
        "dl", "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in values.items()), class_="facts"
    )


def folded(summary: str, *parts: str) -> str:
    """Return HTML that is folded away behind its summary."""
    return element("details", "\n".join([element("summary", escape(summary)), *parts]), class_="folded")


def preformatted(text: str) -> str:
    return element("pre", escape(text))


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
<script>{code_in_script(_read("curves.js"))}</script>
</body>
</html>
"""
    write_atomically(file, text)
    return file


def picture(spec: Spec, file: Path, caption: str) -> str:
    """Save a picture as SVG and PNG and return it as HTML with its caption; empty if it cannot be drawn."""
    save_picture(spec, file)
    return embed_picture(spec, caption)


def embed_picture(spec: Spec, caption: str) -> str:
    """Return a picture as HTML with its caption; empty if it cannot be drawn.

    It holds a second, narrow drawing, because on a phone the letters of the first would be too small.
    """
    return _drawn(caption, wide=spec, narrow=narrow(spec))


def embed_scrolled(spec: Spec, caption: str) -> str:
    """Return a picture that cannot be made narrow; on a phone it scrolls in its own box."""
    return _drawn(caption, scrolled=spec)


def _drawn(caption: str, **drawings: Spec) -> str:
    """Return a picture with one drawing per screen width; style.css shows the one that fits."""
    images = {kind: as_svg(spec) for kind, spec in drawings.items()}
    shown = [element("div", svg, class_=kind, role="img", aria_label=caption) for kind, svg in images.items() if svg]
    return element("figure", f"{''.join(shown)}<figcaption>{escape(caption)}</figcaption>") if shown else ""


def pictures(drawings: Iterable[str], small: bool = False) -> str:
    """Return pictures side by side where there is room."""
    drawn = list(filter(None, drawings))
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
