"""A figure as a small plot for a cell of a table: the mean, and the range of its seeds, on the scale of its column."""

import math
from collections.abc import Iterable, Mapping, Sequence

from lrpe.lab.report.page import element

Scale = tuple[float, float]  # the figures at the left and the right end

_WIDTH, _HEIGHT, _PAD = 120, 18, 7  # of the drawing, in pixels; dots at the ends need the padding


def scale_of(figures: Iterable[float]) -> Scale | None:
    """Return the scale on which all these figures can be drawn, or None if they do not differ."""
    finite = [figure for figure in figures if math.isfinite(figure)]
    return (min(finite), max(finite)) if finite and min(finite) < max(finite) else None


def draw_interval(
    mean: float, seeds: Mapping[int, float], scale: Scale, references: Sequence[float] = (), digits: int = 2
) -> str:
    """Return the plot as SVG.

    Args:
        mean: the figure of the cell.
        seeds: the figures whose mean it is, by seed; empty for a figure that has none.
        scale: the ends of the plot; a figure beyond them is an arrow.
        references: figures with a vertical line, the first solid and the second dashed.
        digits: decimal places of the description, which is shown on hovering and read out.
    """
    lines = [
        f'<line class="reference" x1="{_x(each, scale)}" x2="{_x(each, scale)}" y1="0" y2="{_HEIGHT}"/>'
        for each in references
    ]
    values = [figure for figure in seeds.values() if math.isfinite(figure)]
    title = element("title", _describe(mean, seeds, digits))
    parts = [title, *lines, _range(values, scale) if len(values) > 1 else "", _mark(mean, scale)]
    return element("svg", "".join(parts), class_="interval", role="img", viewBox=f"0 0 {_WIDTH} {_HEIGHT}")


def _describe(mean: float, seeds: Mapping[int, float], digits: int) -> str:
    each = ", ".join(f"{figure:.{digits}f} (seed {seed})" for seed, figure in seeds.items())
    return f"{mean:.{digits}f}, the mean of {each}" if len(seeds) > 1 else f"{mean:.{digits}f}"


def _range(values: Sequence[float], scale: Scale) -> str:
    y = _HEIGHT / 2
    return f'<line class="range" x1="{_x(min(values), scale)}" x2="{_x(max(values), scale)}" y1="{y:g}" y2="{y:g}"/>'


def _mark(mean: float, scale: Scale) -> str:
    x, y = _x(mean, scale), _HEIGHT / 2
    if scale[0] <= mean <= scale[1]:
        return f'<circle cx="{x}" cy="{y:g}" r="4"/>'
    side = 1 if mean > scale[1] else -1
    return f'<path class="beyond" d="M{x + 6 * side},{y:g}l{-6 * side},-4v8Z"/>'


def _x(figure: float, scale: Scale) -> float:
    """Return the place of a figure in pixels; one beyond the scale is at its end."""
    share = (figure - scale[0]) / (scale[1] - scale[0])
    return round(_PAD + min(1.0, max(0.0, share)) * (_WIDTH - 2 * _PAD), 1)
