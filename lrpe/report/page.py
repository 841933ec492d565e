"""A static page of results: one file that needs no network, in light and dark."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from lrpe.whole import write_whole

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1.5rem 0; display: block; overflow-x: auto; }
th, td { padding: .3rem .9rem; text-align: right; }
tr { border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
th[scope=row] { text-align: left; font-weight: normal; }
figure { margin: 1.5rem 0; background: white; border-radius: 6px; padding: .5rem; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; }
figcaption { color: #333; font-size: .9rem; }
code { overflow-wrap: anywhere; }
"""


def write_page(
    file: Path, title: str, paragraphs: Sequence[str], table: str, figure: str | None, caption: str, command: str
) -> Path:
    """Write the page."""
    words = "\n".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
    picture = f"<figure>{figure}<figcaption>{escape(caption)}</figcaption></figure>" if figure else ""
    text = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}</style></head>
<body><main><h1>{escape(title)}</h1>
{table}
{picture}
{words}
<p>Made by <code>{escape(command)}</code>.</p>
</main></body></html>
"""
    write_whole(file, text)
    return file
