import json
import re
from functools import partial

import pytest

from lrpe.lab.cli import main
from lrpe.lab.data import catalog
from lrpe.lab.data.dataset import Dataset, Entry, Rows


@pytest.fixture(autouse=True)
def three_datasets(monkeypatch):
    def make(path=None, lines: int = 3):
        rows = Rows([{"text": f"line {i} of {path}"} for i in range(lines)])
        facts = {"labels": 2, "splits": {"train": {"words": 1234}}, "balance": {"train": [2, 1]}}
        facts["content"] = 4 * "0123456789abcdef"
        return Dataset("made", {"train": rows}, facts, show=lambda sample: sample["text"].upper())

    entry = partial(Entry, kind="sentences", licence="MIT", source="a place")
    entries = [
        entry("here", summary="of this machine", layout=None, load=make),
        entry("away", summary="of another", layout="rows.tsv", load=make),
        entry("afar", summary="of the hub", layout=None, load=None, hub=make),
    ]
    monkeypatch.setattr(catalog, "CATALOG", {entry.name: entry for entry in entries})


def test_every_dataset_is_listed_with_where_it_comes_from(capsys):
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[::2][:2] for line in lines[2:]] == [["here", "here"], ["away", "--path"], ["afar", "--hub"]]
    assert main(["data", "list", "--json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == ["here", "away", "afar"]


def test_a_dataset_is_shown_with_its_samples(capsys, tmp_path):
    assert main(["data", "show", "here", "--samples", "1"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^train +3 +1,234 +2 1$", shown, re.MULTILINE)
    assert re.search(r"^split +samples +words +balance$", shown, re.MULTILINE)
    assert re.search(r"^content +0123456789abcdef…$", shown, re.MULTILINE)
    assert not re.search(r"[{}]", shown)
    assert "LINE 0 OF NONE" in shown
    assert "LINE 1" not in shown
    assert main(["data", "show", "away", "--path", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["splits"]["train"]["samples"] == 3


def test_a_dataset_without_its_files_tells_where_to_get_them(capsys, tmp_path):
    assert main(["data", "show", "away"]) == 0
    assert "lrpe data show away --path DIR" in capsys.readouterr().out
    assert main(["data", "prepare", "away"]) == 2
    assert "get them from a place and pass their path. Layout: rows.tsv" in capsys.readouterr().err
    assert main(["data", "prepare", "away", "--path", str(tmp_path / "no")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main(["data", "prepare", "here", "--path", str(tmp_path)]) == 2
    assert "reads no files" in capsys.readouterr().err


def test_a_dataset_of_the_hub_is_loaded_only_if_the_hub_is_named(capsys):
    assert main(["data", "show", "afar"]) == 0
    shown = capsys.readouterr().out
    assert "lrpe data show afar --hub" in shown
    assert "train" not in shown
    assert main(["data", "prepare", "afar"]) == 2
    assert "available only from the hub" in capsys.readouterr().err
    assert main(["data", "prepare", "afar", "--hub"]) == 0
    assert "train 3 samples" in capsys.readouterr().out


def test_what_is_prepared_is_counted(capsys):
    assert main(["data", "prepare", "here"]) == 0
    assert capsys.readouterr().out == "made is ready: train 3 samples.\n"


def test_a_name_that_is_not_known_or_not_given_is_named(capsys):
    assert main(["data", "show", "hare"]) == 2
    assert "Did you mean 'here'" in capsys.readouterr().err
    assert main(["data", "show"]) == 2
    assert "takes exactly one dataset" in capsys.readouterr().err


def test_options_reach_the_loader_and_a_wrong_one_is_named(capsys):
    assert main(["data", "prepare", "here", "--options", "lines=5"]) == 0
    assert "train 5 samples" in capsys.readouterr().out
    assert main(["data", "prepare", "here", "--options", "line=5"]) == 2
    assert "There is no option of here named 'line'. Did you mean 'lines'?" in capsys.readouterr().err
    assert main(["data", "prepare", "here", "--options", "lines=abc"]) == 2
    assert "lines of here must be a whole number; got 'abc'" in capsys.readouterr().err
    assert main(["data", "show", "away", "--options", "lines=5"]) == 2
    assert "pass --path PATH or --hub for away" in capsys.readouterr().err
    assert main(["data", "prepare", "here", "--options", "lines"]) == 2
    assert "--options must be name=value" in capsys.readouterr().err
