"""A table: rows × printed columns, and for each number the experiment that it is read from."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lrpe.encodings.angles import SCALINGS
from lrpe.errors import unknown_name
from lrpe.lab.experiments.columns.named import find_column
from lrpe.lab.experiments.experiment import Experiment


def split_row(row: str) -> tuple[str, str]:
    """Return the method of a row and the scaling of its α, which may be empty: ("type2", "yarn") for type2+yarn."""
    method, plus, scaling = row.partition("+")
    if plus and scaling not in SCALINGS:
        raise unknown_name("scaling of α", scaling, SCALINGS)
    return method, scaling


@dataclass(frozen=True)
class Figure:
    """A printed column: which experiment a row's number is read from, and where in its results.

    Attributes:
        title: the heading.
        column: the column of the experiments.
        split, metric: where the number is in an experiment's results.
        better: the direction in which rows are ranked; None if they are not.
        paper: the paper's numbers by row.
        digits: decimals that are printed.
        factor: factor applied to the number before printing: 100 for percentages.
        matrix: the Λ that a row, which is then a P, is multiplied with; empty if a row is a method.
        changes: fields of the experiment that this column replaces, such as ``lengths``.
    """

    title: str
    column: str
    split: str
    metric: str
    better: Literal["lower", "higher"] | None
    paper: dict[str, float]
    digits: int = 2
    factor: float = 1.0
    matrix: str = ""
    changes: dict[str, Any] = field(default_factory=dict)

    def experiment(self, row: str, setting: str) -> Experiment:
        """Return the row's experiment as the paper ran it."""
        return replace(find_column(self.column)(self.method(row), setting), **self.changes)

    def method(self, row: str) -> str:
        """Return the method that is trained for a row: type2 for type2+yarn, whose α are scaled after training."""
        if self.changes.get("lengths"):
            return split_row(row)[0]
        return f"{row}*{self.matrix}" if self.matrix else row

    def read(self, results: dict[str, dict[str, float]], row: str) -> float | None:
        """Return the row's number from the results of its experiment, if they have it."""
        scaling = split_row(row)[1]
        split = f"{self.split}, {scaling}" if scaling else self.split
        value = results.get(split, {}).get(self.metric)
        return None if value is None else self.factor * value


@dataclass(frozen=True)
class Table:
    """Rows × printed columns.

    Attributes:
        name: the name that users type.
        title: the title that is printed.
        rows: the paper's rows.
        figures: the printed columns.
        average: the paper's name for the mean of the figures, if it prints one.
        average_paper: the paper's averages by row.
        counted: whether the perplexity of counted tokens and pairs is shown below the rows.
        texts: the columns that it is made of, if each can be any text.
        references: the paper's columns on other data than ours, which are printed separately.
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
