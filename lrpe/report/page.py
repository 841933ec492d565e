"""A static page of results: one file that needs no network, in light and dark."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from lrpe.report.picture import Spec, as_svg, save_picture
from lrpe.whole import write_whole

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1.5rem 0; display: block; overflow-x: auto; }
th, td { padding: .3rem .8rem; text-align: right; white-space: nowrap; }
tr { border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
th[scope=row], th[scope=col]:first-child { text-align: left; font-weight: normal; }
figure { margin: 1.5rem 0; background: white; border-radius: 6px; padding: .5rem; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; }
figcaption { color: #333; font-size: .9rem; }
pre, code { overflow-wrap: anywhere; white-space: pre-wrap; font-size: .9rem; }
details { margin: .5rem 0; }
"""


def write_page(file: Path, title: str, parts: Sequence[str]) -> Path:
    """Write a page of these parts, which are HTML."""
    body = "\n".join(filter(None, parts))
    text = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}</style></head>
<body><main><h1>{escape(title)}</h1>
{body}
</main></body></html>
"""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text)
    return file


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def picture(spec: Spec, file: Path, caption: str) -> str:
    """A picture with what it shows, saved as SVG and PNG as well; nothing where it cannot be drawn."""
    save_picture(spec, file)
    svg = as_svg(spec)
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" if svg else ""


def made_by(command: str) -> str:
    return f"<p>Made by <code>{escape(command)}</code>.</p>"


def folded(summary: str, text: str) -> str:
    """Text that is shown when it is asked for."""
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"
