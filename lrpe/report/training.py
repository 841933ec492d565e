"""How the cells of a table were trained: their curves, the time of their updates, their learned angles."""

from collections.abc import Iterator
from pathlib import Path

from lrpe.experiments.experiment import Experiment
from lrpe.experiments.listing import curve, seconds_an_update
from lrpe.experiments.summary import Chosen, means
from lrpe.experiments.tables import title_of
from lrpe.report.curves import curves_spec
from lrpe.report.formats import as_html
from lrpe.report.learned_angles import angles_picture
from lrpe.report.page import paragraph, picture
from lrpe.report.table import Column

Cells = dict[str, list[Experiment]]  # one a seed, by row


def show_training(chosen: Chosen, setting: str, out: Path) -> Iterator[str]:
    """The curves of every column, the time that its updates took, and what became of learned angles."""
    columns = trained(chosen, setting)
    for name, cells in columns.items():
        yield from curves_of(chosen, cells, out / f"{setting}-{name}", name)
    speeds = [Column(f"{name}: seconds an update", speed_of(chosen, cells), 3, None) for name, cells in columns.items()]
    yield as_html({row: title_of(row) for row in chosen.rows}, speeds, [])
    yield paragraph("Times are as the runs went, beside whatever else the machine did; lrpe table speed takes care.")
    for name, cells in columns.items():
        for row, (cell, *_) in ((row, group) for row, group in cells.items() if "+" not in row):
            file = out / f"{setting}-{name}-{row.replace('*', '-times-')}-angles"
            yield angles_picture(chosen.runs / cell.name, file, f"{title_of(row)} on {name}, seed {cell.training.seed}")


def trained(chosen: Chosen, setting: str) -> dict[str, Cells]:
    """Group the trained cells by column, and by figure too where a column has several."""
    found: dict[str, tuple[str, str, Cells]] = {}
    for figure in chosen.table.figures:
        cells = {row: chosen.of_seeds(figure, row, setting) for row in chosen.rows}
        first = cells[chosen.rows[0]][0]
        column = " ".join(filter(None, (first.column, first.variant)))
        found.setdefault(first.name, (column, figure.title, cells))
    columns = [column for column, _, _ in found.values()]
    return {
        column if columns.count(column) == 1 else f"{column} {title}": cells for column, title, cells in found.values()
    }


def curves_of(chosen: Chosen, cells: Cells, file: Path, name: str) -> Iterator[str]:
    """A picture for the metric that the rows are judged by; none before the first validation."""
    found = {row: [curve(chosen.runs / cell.name) for cell in group] for row, group in cells.items()}
    bands = "; bands are the seeds' range" if len(chosen.seeds) > 1 else ""
    for metric in sorted({metric for group in found.values() for metric, points in group if points}):
        lines = {row: [points for _, points in group if points] for row, group in found.items()}
        drawn = {row: group for row, group in lines.items() if group}
        spec = curves_spec(drawn, {row: title_of(row) for row in drawn}, metric, log=metric == "perplexity")
        yield picture(spec, file.with_name(f"{file.name} {metric}"), f"{name} {metric} in validation{bands}.")


def speed_of(chosen: Chosen, cells: Cells) -> dict[str, float]:
    """Seconds an update by row, the mean over seeds of each run's median."""
    found = {row: [seconds_an_update(chosen.runs / cell.name) for cell in group] for row, group in cells.items()}
    known = {row: [seconds for seconds in group if seconds is not None] for row, group in found.items()}
    return means({row: group for row, group in known.items() if group})
