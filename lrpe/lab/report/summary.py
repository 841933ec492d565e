"""What a table shows, in a few sentences computed from its first column."""

import math
from collections.abc import Sequence

from lrpe.lab.experiments.methods import SEVEN
from lrpe.lab.report.table import FigureColumn


def summarize(rows: dict[str, str], column: FigureColumn, ranked: Sequence[str]) -> list[str]:
    """Return the best rows, the best of the paper's rows beside Base, and linear beside softmax attention.

    Args:
        rows: {name: title}, as the table is printed.
        column: the figures that the sentences compare; without a direction there are none.
        ranked: the names of the trained rows, which are compared with each other.
    """
    known = [row for row in ranked if math.isfinite(column.figures.get(row, math.nan))]
    if column.better is None or len(known) < 2:
        return []
    known.sort(key=lambda row: column.figures[row] * (-1 if column.better == "higher" else 1))
    shown = {row: f"{rows[row]} ({column.figures[row]:.{column.digits}f})" for row in known}
    most = "lowest" if column.better == "lower" else "highest"
    sentences = [f"{column.title}: {shown[known[0]]} is {most}, followed by {shown[known[1]]}."]
    return sentences + _about_the_paper(known, shown) + _about_softmax(known, shown) + _about_counting(column, known)


def _about_the_paper(known: Sequence[str], shown: dict[str, str]) -> list[str]:
    """Compare the best of the paper's relative encodings with Base."""
    relative = [row for row in known if row in SEVEN and row != "base"]
    if "base" not in known or not relative:
        return []
    order = "is ahead of" if known.index(relative[0]) < known.index("base") else "is not ahead of"
    best = f"The best of the paper's relative encodings, {shown[relative[0]]},"
    return [f"{best} {order} {shown['base']}, which adds absolute positions."]


def _about_softmax(known: Sequence[str], shown: dict[str, str]) -> list[str]:
    """Compare our recommendation with softmax attention."""
    if not {"recommended", "softmax"} <= set(known):
        return []
    order = "is ahead of" if known.index("recommended") < known.index("softmax") else "is not ahead of"
    ours = f"The linear attention that we recommend, {shown['recommended']},"
    return [f"{ours} {order} {shown['softmax']}, whose time is quadratic in the length."]


def _about_counting(column: FigureColumn, known: Sequence[str]) -> list[str]:
    """Say how many rows are better than counted pairs, if these are shown."""
    counted = column.figures.get("bigrams")
    if counted is None or column.better != "lower":
        return []
    ahead = sum(column.figures[row] < counted for row in known)
    pairs = f"Counting pairs of neighbouring tokens gives {counted:.{column.digits}f}"
    return [f"{pairs}; {ahead} of {len(known)} rows are better."]
