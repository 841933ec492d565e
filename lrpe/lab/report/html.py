"""HTML elements that escape their text.

Names of runs, rows and files can hold any character, so every page is written with these functions.
"""

import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from typing import Any

from lrpe.lab.report.palette import dark_rules

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
    style = files("lrpe.lab.report").joinpath("style.css").read_text(encoding="utf-8")
    return f"{style}\n{dark_rules()}"


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
