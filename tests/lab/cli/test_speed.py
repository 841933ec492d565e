"""What a person sees of lrpe table speed."""

import json
import re

import pytest

from lrpe.lab.cli import main
from lrpe.lab.experiments.paper import SPEED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The table of a tiny model, through the command line."""
    runs = tmp_path_factory.mktemp("runs")
    assert main(["table", "speed", "--scale", "smoke", "--rows", "type1,spe", "--runs", str(runs)]) == 0
    return runs / "tables" / "speed-smoke"


def test_the_table_is_written_in_the_files_of_every_table(made):
    assert {file.name for file in made.iterdir()} == {
        "fair.txt", "fair.md", "fair.tex", "fair.json", "table.txt", "table.json", "index.html", "speed.svg",
        "speed.png",
    }  # fmt: skip
    assert r"Base & 1.00 & 1.00 \\" in (made / "fair.tex").read_text()
    page = (made / "index.html").read_text()
    assert "Measurement" in page
    assert "steps ÷ Base" in page


def test_the_papers_numbers_stand_beside_ours(made):
    (column,) = json.loads((made / "table.json").read_text())["settings"]["fair"]["columns"]
    assert list(column["figures"]) == ["base", "type1", "spe"]
    assert column["figures"]["base"] == 1.0
    assert column["paper"] == {row: SPEED[row][0] for row in column["figures"]}
    text = (made / "table.txt").read_text()
    assert re.search(r"^ +relative speed ↑ +paper$", text, re.M)
    assert re.search(r"^SPE +\d\.\d\d .* +0\.61$", text, re.M)
    assert "Base timed against itself" in text
    assert "nothing about speed" in text
    assert text.splitlines()[-1].startswith("Made by: lrpe ")


def test_the_whole_measurement_is_kept(made):
    result = json.loads((made / "fair.json").read_text())
    assert result["benchmark"] == "train"
    assert all({"low", "high"} <= set(row["speed"]) for row in result["rows"])


def test_a_dry_run_says_what_it_would_measure(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("measured all the same"))
    assert main(["table", "speed", "--dry-run", "--out", str(tmp_path / "new")]) == 0
    out = capsys.readouterr().out
    for words in ("Base, RoPE, SPE, PER, Type 1, Type 2, Type 3", "3 layers of width 768", "10 rounds", "new"):
        assert words in out
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--scale", "paper"], "got --scale paper"),
        (["--rows", "type4"], "named 'type4'"),
        (["--seeds", "0,1", "--settings", "authors"], "does not take --settings or --seeds"),
        (["--training.seed", "3"], "does not take --training.seed"),
    ],
)
def test_what_a_measurement_does_not_take_is_refused(argv, sentence, monkeypatch, capsys):
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("measured all the same"))
    assert main(["table", "speed", *argv]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.err.count("\n") == 1
