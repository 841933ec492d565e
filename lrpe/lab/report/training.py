"""The training of a table's cells: validation curves, seconds per update, learned angles."""

from collections.abc import Iterator
from pathlib import Path

from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.listing import curve, seconds_per_update
from lrpe.lab.experiments.planning import Plan
from lrpe.lab.experiments.summary import means
from lrpe.lab.experiments.tables import title_of
from lrpe.lab.report.curves import curves_spec
from lrpe.lab.report.formats import as_html
from lrpe.lab.report.html import heading, paragraph
from lrpe.lab.report.learned_angles import angles_picture
from lrpe.lab.report.page import picture, pictures
from lrpe.lab.report.picture import file_name
from lrpe.lab.report.table import Column

_Cells = dict[str, list[Experiment]]  # one per seed, by row


def show_curves(plan: Plan, setting: str, out: Path) -> str:
    """Return the validation curves of every column as figures."""
    columns = trained(plan, setting).items()
    return pictures(
        picture for name, cells in columns for picture in _curves_of(plan, cells, out / file_name(setting, name), name)
    )


def show_training(plan: Plan, setting: str, out: Path) -> Iterator[str]:
    """Yield the seconds per update of every column, and the learned angles."""
    columns = trained(plan, setting)
    speeds = [Column(name, _speed_of(plan, cells), 3, None) for name, cells in columns.items()]
    yield heading("Seconds per update", 3)
    yield as_html({row: title_of(row) for row in plan.rows}, speeds, [])
    yield paragraph("Wall-clock times of these runs, not a benchmark; for that, run lrpe table speed.")
    angles = pictures((_angles_of(plan, *cell, out / setting) for cell in _first_seeds(columns)), small=True)
    if angles:
        yield heading("Learned angles", 3)
        yield angles


def _first_seeds(columns: dict[str, _Cells]) -> Iterator[tuple[str, str, Experiment]]:
    """Yield column, row and the first seed's cell; rows with a plus reuse another row's run and are skipped."""
    for name, cells in columns.items():
        yield from ((name, row, group[0]) for row, group in cells.items() if "+" not in row)


def _angles_of(plan: Plan, name: str, row: str, cell: Experiment, out: Path) -> str:
    file = out.with_name(file_name(out.name, name, row, "angles"))
    return angles_picture(plan.runs / cell.name, file, f"{title_of(row)} on {name}, seed {cell.training.seed}")


def trained(plan: Plan, setting: str) -> dict[str, _Cells]:
    """Group the trained cells by column, and by figure where a column has several."""
    found: dict[str, tuple[str, str, _Cells]] = {}
    for figure in plan.table.figures:
        cells = {row: list(cell.experiments) for row, cell in plan.find_cells(figure, setting).items()}
        first = cells[plan.rows[0]][0]
        column = " ".join(filter(None, (first.column, first.variant)))
        found.setdefault(first.name, (column, figure.title, cells))
    columns = [column for column, _, _ in found.values()]
    return {
        column if columns.count(column) == 1 else f"{column} {title}": cells for column, title, cells in found.values()
    }


def _curves_of(plan: Plan, cells: _Cells, file: Path, name: str) -> Iterator[str]:
    """Yield a picture of the metric that the rows are judged by; none before the first validation."""
    found = {row: [curve(plan.runs / cell.name) for cell in group] for row, group in cells.items()}
    bands = "; bands show the range over seeds" if len(plan.seeds) > 1 else ""
    for metric in sorted({metric for group in found.values() for metric, points in group if points}):
        lines = {row: [points for _, points in group if points] for row, group in found.items()}
        drawn = {row: group for row, group in lines.items() if group}
        spec = curves_spec(drawn, {row: title_of(row) for row in drawn}, metric, log=metric == "perplexity")
        yield picture(spec, file.with_name(file_name(file.name, metric)), f"{name}: validation {metric}{bands}.")


def _speed_of(plan: Plan, cells: _Cells) -> dict[str, float]:
    """Return the seconds per update by row: the mean over seeds of each run's median."""
    found = {row: [seconds_per_update(plan.runs / cell.name) for cell in group] for row, group in cells.items()}
    known = {row: [seconds for seconds in group if seconds is not None] for row, group in found.items()}
    return means({row: group for row, group in known.items() if group})
