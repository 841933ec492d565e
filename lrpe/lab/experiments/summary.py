"""Summarise the runs of a table: means and standard deviations over seeds."""

from collections.abc import Sequence
from statistics import mean, stdev

from lrpe.lab.experiments.planning import Plan
from lrpe.lab.experiments.run import read_results
from lrpe.lab.experiments.table import Figure

Scores = dict[str, list[float]]  # one per seed, by row


def read_scores(plan: Plan, figure: Figure, setting: str) -> Scores:
    """Return a printed column's numbers by row, one per seed that has results."""
    scores: Scores = {}
    for row, cell in plan.find_cells(figure, setting).items():
        folders = [plan.runs / experiment.name for experiment in cell.experiments]
        results = [read_results(folder) for folder in folders if (folder / "results.json").exists()]
        values = [value for result in results if (value := figure.read(result, row)) is not None]
        if values:
            scores[row] = values
    return scores


def averages(figures: Sequence[Scores], rows: Sequence[str], seeds: int) -> Scores:
    """Return the mean over figures by row and seed, for the rows that have all of them."""
    whole = [row for row in rows if all(len(scores.get(row, ())) == seeds for scores in figures)]
    return {row: [mean(scores[row][k] for scores in figures) for k in range(seeds)] for row in whole}


def means(scores: Scores) -> dict[str, float]:
    return {row: mean(values) for row, values in scores.items()}


def deviations(scores: Scores) -> dict[str, float]:
    return {row: stdev(values) for row, values in scores.items() if len(values) > 1}
