"""Plan a table: resolve every experiment that its numbers are read from, before anything is trained.

A text that is not available is replaced by Python's standard library: one column under its own name, however many
texts are missing. The paper's numbers are printed beside ours if both use the same data, and separately otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lrpe.errors import require
from lrpe.lab.experiments.columns import COLUMNS, find_column
from lrpe.lab.experiments.experiment import Data, Experiment, apply_changes
from lrpe.lab.experiments.methods import MARKS, REFERENCES, check_row, find_method, find_setting
from lrpe.lab.experiments.scale import find_scale
from lrpe.lab.experiments.tables import PrintedColumn, Table, find_table

_NOTHING: Mapping[str, Any] = MappingProxyType({})  # an immutable default
_LIBRARY = "stdlib"  # the column of Python's standard library


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Attributes:
        printed_column: the printed column.
        row: the row.
        setting: the setting in which the rows are compared.
        experiments: one per seed, whose results are averaged.
    """

    printed_column: PrintedColumn
    row: str
    setting: str
    experiments: tuple[Experiment, ...]


@dataclass(frozen=True)
class Plan:
    """A table and all its experiments. Training and reports read this and decide nothing themselves.

    Attributes:
        table: the table, for the data that the experiments use.
        rows: the rows, in the order in which they are printed.
        settings: the settings in which the rows are compared; one printed table each.
        seeds: the seeds of every cell.
        runs: the folder of all runs.
        cells: the numbers of the table, by setting, printed column and row.
        against: the rows that every other one is tested against.
    """

    table: Table
    rows: tuple[str, ...]
    settings: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: Path
    cells: tuple[Cell, ...]
    against: tuple[str, ...] = REFERENCES

    @property
    def experiments(self) -> list[Experiment]:
        """Every experiment once, in the order of the cells; several cells may be read from one experiment."""
        return list({each.name: each for cell in self.cells for each in cell.experiments}.values())

    def find_cells(self, printed: PrintedColumn, setting: str) -> dict[str, Cell]:
        """Return the cells of a printed column by row."""
        return {
            cell.row: cell
            for cell in self.cells
            if (cell.printed_column.title, cell.setting) == (printed.title, setting)
        }


@dataclass(frozen=True)
class _Preparation:
    """The scale, data and changes that turn the experiment of a column into the one that is trained."""

    scale: str
    data: Mapping[str, str]
    changes: Mapping[str, Any]

    def apply(self, experiment: Experiment) -> Experiment:
        sized = find_scale(self.scale)(experiment).with_data(dict(self.data))
        return apply_changes(sized, dict(self.changes)) if self.changes else sized


def plan(
    table: str,
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    settings: Sequence[str] = ("fair",),
    seeds: Sequence[int] = (0,),
    scale: str = "small",
    data: Mapping[str, str] = _NOTHING,
    changes: Mapping[str, Any] = _NOTHING,
    runs: Path = Path("runs"),
    against: Sequence[str] = (),
) -> Plan:
    """Resolve rows × columns × seeds × settings of a table into experiments.

    Args:
        table: lm, glue, imagenet, lra, basis, normalizer, length, position or probes.
        rows: methods; the table's own if empty.
        columns: columns; if empty, the columns that ``data`` names, or else the paper's.
        settings: the settings in which the rows are compared.
        seeds: the seeds of every cell.
        scale: paper, medium, small, demo or smoke.
        data: paths by column or dataset; see ``Experiment.with_data``.
        changes: nested fields of every experiment, which override everything else.
        runs: the folder of all runs.
        against: rows that the others are tested against, at most four; Base and RoPE if empty.

    Raises:
        LrpeError: a name is unknown, the table has no such row or column, or there is no setting or seed.
    """
    require(bool(settings and seeds), f"settings and seeds must not be empty; got {settings=}, {seeds=}.")
    preparation = _Preparation(scale, data, changes)
    settled = _settle(table, columns or [column for column in data if column in COLUMNS], preparation)
    rows = tuple(rows) or settled.rows
    _check_rows(settled, rows)
    against = tuple(dict.fromkeys(against))
    _check_references(against, rows)
    for setting in settings:
        find_setting(setting)
    cells = [
        Cell(printed, row, setting, _with_seeds(preparation.apply(printed.experiment(row, setting)), seeds))
        for setting in settings
        for printed in settled.printed_columns
        for row in rows
    ]
    return Plan(settled, rows, tuple(settings), tuple(seeds), runs, tuple(cells), against or REFERENCES)


def plan_experiment(
    column: str,
    method: str = "type2",
    setting: str = "fair",
    *,
    scale: str = "small",
    seed: int = 0,
    data: Mapping[str, str] = _NOTHING,
    changes: Sequence[Mapping[str, Any]] = (),
) -> Experiment:
    """Resolve one experiment; see ``plan``. Each of ``changes`` is labelled relative to the ones before it.

    Raises:
        LrpeError: a name is unknown, including names in ``changes``.
    """
    experiment = _Preparation(scale, data, {}).apply(find_column(column)(method, setting)).with_seed(seed)
    for change in changes:
        experiment = apply_changes(experiment, dict(change))
    find_method(experiment.method)
    find_setting(experiment.setting)
    return experiment


def _check_rows(table: Table, rows: Sequence[str]) -> None:
    """Raise ``LrpeError`` for a row that the table cannot have, before anything is trained."""
    for row in rows:
        check_row(row)
        for printed in table.printed_columns:
            find_method(printed.method(row))


def _check_references(against: Sequence[str], rows: Sequence[str]) -> None:
    """Raise ``LrpeError`` for a reference that the table has no row of, or for too many of them."""
    for row in against:
        require(row in rows, f"against must name rows of the table, {', '.join(rows)}; got {row!r}.")
    require(
        len(against) <= len(MARKS),
        f"against must name at most {len(MARKS)} rows; got {', '.join(against)}.",
    )


def _with_seeds(experiment: Experiment, seeds: Sequence[int]) -> tuple[Experiment, ...]:
    return tuple(experiment.with_seed(seed) for seed in seeds)


def _settle(name: str, columns: Sequence[str], preparation: _Preparation) -> Table:
    """Return the named table, for the data that its prepared experiments use."""
    asked = find_table(name, columns)
    texts = dict.fromkeys(text if _is_available(text, preparation) else _LIBRARY for text in asked.texts)
    table = find_table(name, list(texts)) if texts else asked
    separate = [each for each in asked.printed_columns if each.paper and not _has_papers_data(asked, each, preparation)]
    if not separate:
        return table
    printed_columns = tuple(
        each if _has_papers_data(table, each, preparation) else replace(each, paper={})
        for each in table.printed_columns
    )
    return replace(table, printed_columns=printed_columns, references=(*separate, *_average(asked)), average_paper=None)


def _is_available(column: str, preparation: _Preparation) -> bool:
    experiment = find_column(column)()
    return preparation.apply(experiment).data.name == experiment.data.name


def _has_papers_data(table: Table, printed: PrintedColumn, preparation: _Preparation) -> bool:
    """Return whether data and tokens are the paper's: a perplexity per byte is not one per word."""
    experiment = printed.experiment(table.rows[0], "fair")
    return _identify(preparation.apply(experiment).data) == _identify(experiment.data)


def _identify(data: Data) -> tuple[str, object]:
    return data.name, data.options.get("tokenizer")


def _average(table: Table) -> list[PrintedColumn]:
    if table.average is None or not table.average_paper:
        return []
    return [replace(table.printed_columns[0], title=table.average, paper=table.average_paper)]
