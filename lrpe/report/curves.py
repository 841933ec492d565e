"""Validation curves of all rows in one picture."""

from typing import Any

COLOURS = ["#000000", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#D55E00", "#0072B2"]  # Okabe and Ito's


def curves_svg(curves: dict[str, list[tuple[int, float]]], title: str) -> str | None:
    """An SVG of the curves, or None without altair and vl-convert (pip install 'lrpe[report]')."""
    try:
        import altair as alt
        import vl_convert
    except ImportError:
        return None
    names = list(curves)
    values = [{"method": name, "update": u, "value": v} for name, points in curves.items() for u, v in points]
    base: Any = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("update:Q", title="update"),
        y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False)),
        color=alt.Color("method:N", sort=names, scale=alt.Scale(domain=names, range=COLOURS), title=None),
        shape=alt.Shape("method:N", sort=names, scale=alt.Scale(domain=names), title=None),
    )
    chart = (base.mark_line() + base.mark_point(filled=True, size=50)).properties(width=560, height=320)
    return vl_convert.vegalite_to_svg(chart.to_json())
