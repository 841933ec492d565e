"""What the figures of a page were measured on, by name, and what a stand-in takes the place of."""

from collections.abc import Iterable

from lrpe.lab.data.catalog import CATALOG
from lrpe.lab.experiments.columns.named import COLUMNS
from lrpe.lab.experiments.experiment import Experiment


def data_used(experiments: Iterable[Experiment]) -> dict[str, str]:
    """Return {"lra-text on stdlib-packages": what it is} for the data of every column."""
    used = {label(cell): cell for cell in experiments}
    return {name: _describe(cell) for name, cell in sorted(used.items())}


def label(cell: Experiment) -> str:
    """The column, and what it learns from if that has another name."""
    return cell.column if cell.column == cell.data.name else f"{cell.column} on {cell.data.name}"


def _describe(cell: Experiment) -> str:
    found = CATALOG.get(cell.data.name)
    summary = "Not in the catalogue" if found is None else found.summary.rstrip(".")
    sentence = f"{summary[:1].upper()}{summary[1:]}{'' if summary.endswith('?') else '.'}"
    wanted = _named_for(cell)
    return sentence if wanted == cell.data.name else f"{sentence} It stands in for {wanted}."


def _named_for(cell: Experiment) -> str:
    """The data that the column is named for; those of a column that is not registered are its own."""
    return COLUMNS[cell.column](cell.method, cell.setting).data.name if cell.column in COLUMNS else cell.data.name
