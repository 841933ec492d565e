"""A table of the data that is at hand.

A text that is not at hand gives way to Python's library: once, and under its own name, however many texts are missing.
The paper's figures stand beside ours where both are of the same data, and apart where they are not.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from lrpe.lab.experiments.columns.named import find_column
from lrpe.lab.experiments.experiment import Data, Experiment
from lrpe.lab.experiments.table import Figure, Table
from lrpe.lab.experiments.tables import find_table

LIBRARY = "stdlib"  # the column of Python's library
Prepare = Callable[[Experiment], Experiment]  # brings an experiment to its scale, with the data that it will have


def settle(name: str, columns: Sequence[str], prepare: Prepare) -> Table:
    """Return the table of that name, of the data that experiments have once they are prepared."""
    asked = find_table(name, columns)
    texts = dict.fromkeys(text if _is_at_hand(text, prepare) else LIBRARY for text in asked.texts)
    table = find_table(name, list(texts)) if texts else asked
    apart = [figure for figure in asked.figures if figure.paper and not _is_of_papers_data(asked, figure, prepare)]
    if not apart:
        return table
    figures = [
        figure if _is_of_papers_data(table, figure, prepare) else replace(figure, paper={}) for figure in table.figures
    ]
    references = (*apart, *_average(asked))
    return replace(table, figures=tuple(figures), references=references, average_paper=None)


def _is_at_hand(column: str, prepare: Prepare) -> bool:
    experiment = find_column(column)()
    return prepare(experiment).data.name == experiment.data.name


def _is_of_papers_data(table: Table, figure: Figure, prepare: Prepare) -> bool:
    """Whether our figure is of the paper's data, in the paper's tokens: a perplexity per byte is not one per word."""
    experiment = figure.cell(table.rows[0], "fair")
    return _identity(prepare(experiment).data) == _identity(experiment.data)


def _identity(data: Data) -> tuple[str, object]:
    return data.name, data.options.get("tokenizer")


def _average(table: Table) -> list[Figure]:
    if table.average is None or not table.average_paper:
        return []
    return [replace(table.figures[0], title=table.average, paper=table.average_paper)]
