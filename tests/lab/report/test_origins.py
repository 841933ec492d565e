"""A table names the commits that trained its runs and the content of their data, whenever it is reported."""

import json

import pytest

from lrpe.lab.experiments.planning import plan
from lrpe.lab.report.origins import Origins, read_origins
from lrpe.lab.report.results import report_table
from tests.lab.report.test_results import write_run

COMMITS = {"base": ("a" * 40, False), "rope": ("a" * 40, False), "type2": ("b" * 40, True)}


@pytest.fixture
def planned(tmp_path):
    """Three finished runs, of which one was trained by a commit with changes and on other text."""
    made = plan("lm", rows=tuple(COMMITS), columns=("stdlib",), scale="smoke", runs=tmp_path)
    for experiment in made.experiments:
        folder = tmp_path / experiment.name
        write_run(folder, 30.0)
        commit, dirty = COMMITS[experiment.method]
        content = "0123456789abcdef" + "0" * 48 if dirty is False else "f" * 64
        place = {"commit": commit, "dirty": dirty, "processor": "A CPU", "threads": 1 + dirty, "gpus": []}
        (folder / "environment.json").write_text(json.dumps(place | {"data": {"name": "stdlib", "content": content}}))
    return made


def test_runs_are_counted_by_commit_and_every_content_is_named(planned):
    assert read_origins(planned.experiments, planned.runs) == Origins(
        {"at commit aaaaaaaaaaaa, A CPU, 1 thread": 2, "at commit bbbbbbbbbbbb, with changes, A CPU, 2 threads": 1},
        {"stdlib": ["0123456789abcdef", "f" * 16]},
    )


def test_text_page_and_data_have_the_origins(planned, tmp_path):
    text, page = report_table(planned, tmp_path / "out", "lrpe table lm")
    trained = "Trained: 2 runs at commit aaaaaaaaaaaa, A CPU, 1 thread; 1 run at commit bbbbbbbbbbbb, with changes"
    assert trained in text
    assert trained in page.read_text()
    assert "Content hashes of the data: stdlib 0123456789abcdef and ffffffffffffffff." in text
    data = json.loads((tmp_path / "out" / "table.json").read_text())["origins"]
    assert data["content"] == {"stdlib": ["0123456789abcdef", "f" * 16]}


def test_runs_without_environment_json_have_an_unknown_commit(planned):
    for experiment in planned.experiments:
        (planned.runs / experiment.name / "environment.json").unlink()
    assert read_origins(planned.experiments, planned.runs).describe() == ["Trained: 3 runs at an unknown commit."]


def test_only_finished_runs_are_counted(planned):
    for experiment in planned.experiments:
        (planned.runs / experiment.name / "results.json").unlink()
    assert read_origins(planned.experiments, planned.runs) == Origins({}, {})
