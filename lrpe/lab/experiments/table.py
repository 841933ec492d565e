"""A table: rows × figures, and for each figure the experiment that it is read from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from lrpe.lab.experiments.experiment import Experiment

Cell = Callable[[str, str], Experiment]  # of a row and a setting


@dataclass(frozen=True)
class Figure:
    """A printed column.

    Attributes:
        title: above it.
        cell: the experiment that a row's figure is read from.
        split, metric: where in its results.
        better: which way it is ranked; None if it is not.
        paper: the paper's numbers by row.
        digits: after the point.
        factor: that it is printed by: 100 for percents.
        suffix: of the split, by row; see the table of lengths.
    """

    title: str
    cell: Cell
    split: str
    metric: str
    better: Literal["lower", "higher"] | None
    paper: dict[str, float]
    digits: int = 2
    factor: float = 1.0
    suffix: Callable[[str], str] = lambda row: ""

    def read(self, results: dict[str, dict[str, float]], row: str) -> float | None:
        value = results.get(self.split + self.suffix(row), {}).get(self.metric)
        return None if value is None else self.factor * value


@dataclass(frozen=True)
class Table:
    """Rows × figures.

    Attributes:
        name: as it is typed.
        title: as it is printed.
        rows: the paper's.
        figures: the columns.
        average: the paper's name for the mean of the figures, if it prints one.
        average_paper: the paper's averages by row.
        counted: whether what counting tokens and pairs alone gives is shown below the rows.
        texts: the columns that it is made of, if each can be any text.
        references: the paper's figures of other data than ours, which are shown apart.
    """

    name: str
    title: str
    rows: tuple[str, ...]
    figures: tuple[Figure, ...]
    average: str | None = None
    average_paper: dict[str, float] | None = None
    counted: bool = False
    texts: tuple[str, ...] = ()
    references: tuple[Figure, ...] = ()
