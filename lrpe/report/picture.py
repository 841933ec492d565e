"""Pictures as Vega-Lite specifications, drawn to SVG and PNG without a browser."""

from pathlib import Path
from typing import Any

from lrpe.whole import write_whole

Spec = dict[str, Any]


def as_svg(spec: Spec) -> str | None:
    """The picture as SVG, or None without vl-convert (pip install 'lrpe[report]')."""
    try:
        import vl_convert
    except ImportError:
        return None
    return vl_convert.vegalite_to_svg(spec)


def save_picture(spec: Spec, file: Path) -> list[Path]:
    """Write ``file`` with the suffixes .svg and .png, fit for a paper; nothing without vl-convert."""
    svg = as_svg(spec)
    if svg is None:
        return []
    import vl_convert

    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file.with_suffix(".svg"), svg)
    write_whole(file.with_suffix(".png"), vl_convert.vegalite_to_png(spec, scale=2))
    return [file.with_suffix(".svg"), file.with_suffix(".png")]
