"""What the runs of a table add up to: means and deviations over seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.run import read_results
from lrpe.lab.experiments.table import Figure, Table

Scores = dict[str, list[float]]  # one a seed, by row


@dataclass(frozen=True)
class Chosen:
    """A table, and what of it is asked for.

    Attributes:
        table: which.
        rows: of it, or others.
        settings: that the rows are compared in.
        seeds: of each cell.
        prepare: brings an experiment to its scale, with its data.
        runs: the folder with all runs.
    """

    table: Table
    rows: Sequence[str]
    settings: Sequence[str]
    seeds: Sequence[int]
    prepare: Callable[[Experiment], Experiment]
    runs: Path

    def cells(self) -> list[Experiment]:
        """Every experiment that is read."""
        return [
            cell
            for setting in self.settings
            for figure in self.table.figures
            for row in self.rows
            for cell in self.of_seeds(figure, row, setting)
        ]

    def of_seeds(self, figure: Figure, row: str, setting: str) -> list[Experiment]:
        prepared = self.prepare(figure.cell(row, setting))
        return [prepared.with_seed(seed) for seed in self.seeds]

    def scores(self, figure: Figure, setting: str) -> Scores:
        """The figure of every seed that has results, by row."""
        found: Scores = {}
        for row in self.rows:
            folders = [self.runs / cell.name for cell in self.of_seeds(figure, row, setting)]
            results = [read_results(folder) for folder in folders if (folder / "results.json").exists()]
            values = [value for result in results if (value := figure.read(result, row)) is not None]
            if values:
                found[row] = values
        return found


def averages(figures: Sequence[Scores], rows: Sequence[str], seeds: int) -> Scores:
    """The mean over figures by row and seed, of the rows that have them all."""
    whole = [row for row in rows if all(len(scores.get(row, ())) == seeds for scores in figures)]
    return {row: [mean(scores[row][k] for scores in figures) for k in range(seeds)] for row in whole}


def means(scores: Scores) -> dict[str, float]:
    return {row: mean(values) for row, values in scores.items()}


def deviations(scores: Scores) -> dict[str, float]:
    return {row: stdev(values) for row, values in scores.items() if len(values) > 1}
