"""Every row and every column of every table trains and is scored at the smallest scale; a cell of each kind resumes."""

import json
from pathlib import Path

import pytest

from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.run import run
from lrpe.lab.experiments.scale import smoke
from lrpe.lab.experiments.tables import TABLES, PrintedColumn
from lrpe.lab.training.loop import Loop

pytestmark = pytest.mark.slow


def every_cell() -> dict[str, tuple[Experiment, list[tuple[PrintedColumn, str]]]]:
    """Each distinct experiment of the tables, and the figures that are read from it."""
    found: dict[str, tuple[Experiment, list[tuple[PrintedColumn, str]]]] = {}
    for table in (build([]) for build in TABLES.values()):
        for figure in table.printed_columns:
            for row in table.rows:
                cell = smoke(figure.experiment(row, "fair")).with_data({})
                found.setdefault(cell.name, (cell, []))[1].append((figure, row))
    return found


def choose_cells() -> dict[str, tuple[Experiment, list[tuple[PrintedColumn, str]]]]:
    """Choose few cells with every column, and every row with every kind of task: only the kind depends on both."""
    cells, chosen = every_cell(), {}
    meetings = {
        name: {(cell.kind, row) for _, row in figures} | {("column", name.rpartition("/")[0])}
        for name, (cell, figures) in cells.items()
    }
    missing = set().union(*meetings.values())
    while missing:
        name = max(cells, key=lambda name: len(meetings[name] & missing))
        chosen[name] = cells[name]
        missing -= meetings[name]
    return chosen


CELLS = choose_cells()


class CrashError(Exception):
    pass


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("name", CELLS)
def test_every_row_and_every_column_trains_and_is_scored(runs, name):
    cell, figures = CELLS[name]
    if cell.start is not None:
        run(cell.start, runs)
    results = run(cell, runs)
    assert updates_in(runs / name) == [1, 2, 3]
    for figure, row in figures:
        value = figure.read(results, row)
        if not ("+" in row and figure.title == "×1"):  # nothing is scaled to the length that it was trained at
            assert value is not None, figure.title
            assert value == value, figure.title


@pytest.mark.parametrize("name", {cell.kind: name for name, (cell, _) in CELLS.items()}.values())
def test_a_cell_of_each_kind_resumes(runs, tmp_path, monkeypatch, name):
    cell, _ = CELLS[name]
    if cell.start is not None:
        run(cell.start, tmp_path)
    learn = Loop.learn
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "learn", lambda self, steps: learn(self, steps) if self.update < 2 else crash())
        with pytest.raises(CrashError):
            run(cell, tmp_path)
    assert not (tmp_path / name / "results.json").exists()
    assert run(cell, tmp_path) == run(cell, runs)
    assert updates_in(tmp_path / name) == [1, 2, 3]
    assert (tmp_path / name / "train.log").read_text().count("Resumed after update") == 1


def updates_in(folder: Path) -> list[int]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["update"] for line in lines if "loss" in line]


def crash():
    raise CrashError


def test_the_paper_has_every_table_and_every_row_that_it_prints():
    assert {name: len(build([]).printed_columns) for name, build in TABLES.items()} == {
        "lm": 4, "glue": 10, "imagenet": 2, "lra": 5, "basis": 3, "normalizer": 6, "length": 6, "position": 4,
        "probes": 17,
    }  # fmt: skip
    for name in ("lm", "glue", "imagenet", "lra", "basis"):
        table = TABLES[name]([])
        papers = {row for printed in table.printed_columns for row in printed.paper}
        assert set(table.rows) == papers
