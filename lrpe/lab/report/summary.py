"""Summarize a table in at most three sentences, computed from its first column."""

import math
from collections.abc import Sequence

from lrpe.lab.experiments.methods import SEVEN
from lrpe.lab.report.paired_test import PairedTest
from lrpe.lab.report.table import FigureColumn


def summarize(rows: dict[str, str], column: FigureColumn, ranked: Sequence[str]) -> list[str]:
    """Return the best rows, the best of the paper's rows beside Base, and linear beside softmax attention.

    A sentence whose rows are missing is left out.

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
    best, second = known[:2]
    level = _compare(column, best, second) == "is level with"
    lead = f"and {shown[second]} are {most}" if level else f"is {most}, followed by {shown[second]}"
    first = f"{column.title}: {shown[best]} {lead}{_beside_counting(column, known)}."
    return [first, *_about_the_paper(column, known, shown), *_about_softmax(column, known, shown)]


def _compare(column: FigureColumn, row: str, other: str) -> str:
    """Return how a row is beside another, by the printed figures."""
    mine, theirs = (round(column.figures[each], column.digits) for each in (row, other))
    if mine == theirs:
        return "is level with"
    return "is ahead of" if (mine < theirs) == (column.better == "lower") else "is behind"


def _about_the_paper(column: FigureColumn, known: Sequence[str], shown: dict[str, str]) -> list[str]:
    """Compare the best of the paper's relative encodings with Base."""
    relative = [row for row in known if row in SEVEN and row != "base"]
    if "base" not in known or not relative:
        return []
    order = _compare(column, relative[0], "base")
    best = f"The best of the paper's relative encodings, {shown[relative[0]]},"
    test = column.tests.get("base", {}).get(relative[0])
    return [f"{best} {order} {shown['base']}, which adds absolute positions{_finding(test)}."]


def _finding(test: PairedTest | None) -> str:
    """Return what the paired test finds, to be appended to a sentence; empty if nothing was tested."""
    if test is None:
        return ""
    verdict = "is significant" if test.significant else "is not significant"
    return f"; over {test.seeds} seeds the difference {verdict} (p = {test.adjusted:.2g}, corrected)"


def _about_softmax(column: FigureColumn, known: Sequence[str], shown: dict[str, str]) -> list[str]:
    """Compare our recommendation with softmax attention."""
    if not {"recommended", "softmax"} <= set(known):
        return []
    order = _compare(column, "recommended", "softmax")
    ours = f"The linear attention that we recommend, {shown['recommended']},"
    return [f"{ours} {order} {shown['softmax']}, whose time is quadratic in the length."]


def _beside_counting(column: FigureColumn, known: Sequence[str]) -> str:
    """Say how many rows are better than counted pairs, if these are shown."""
    counted = column.figures.get("bigrams")
    if counted is None or column.better != "lower":
        return ""
    ahead = sum(column.figures[row] < counted for row in known)
    pairs = f"counting pairs of neighbouring tokens ({counted:.{column.digits}f})"
    return f"; {ahead} of {len(known)} rows are better than {pairs}"
