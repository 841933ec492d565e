import json
import os

import pytest

from lrpe.cli import main


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """One quick run through the command line: its result and the two files that it saved."""
    folder = tmp_path_factory.mktemp("bench")
    assert main(["bench", "encoding", "--quick", "--rounds", "1", "--save", str(folder / "new" / "encoding")]) == 0
    json_file, text_file = folder / "new" / "encoding.json", folder / "new" / "encoding.txt"
    assert sorted(os.listdir(folder / "new")) == ["encoding.json", "encoding.txt"]
    return json.loads(json_file.read_text(encoding="utf-8")), text_file.read_text(encoding="utf-8")


def test_each_goal_prints_its_figure_and_a_word(quick):
    result, text = quick
    goals = [goal for shape in result["shapes"] for goal in shape["goals"]]
    assert len(goals) == 4
    for goal in goals:
        assert goal["verdict"] == ("pass" if goal["figure"] <= goal["goal"] else "short")
    assert text.rstrip().endswith(("pass", "short"))


def test_every_row_is_a_ratio_with_its_spread(quick):
    result, text = quick
    for shape in result["shapes"]:
        for row in shape["rows"]:
            assert row["name"] in text
            for figure in filter(None, (row["forward"], row["both"])):
                assert 0 < figure["low"] <= figure["ratio"] <= figure["high"]


def test_peers_that_were_timed_gave_our_answer(quick):
    result, _ = quick
    for shape in result["shapes"]:
        peers = {agreement["sides"][1] for agreement in shape["agreements"]}
        assert {"paper's listing", "transformers", "rotary-embedding-torch"} <= peers
        assert all(max(a["outputs"], a["gradients"]) <= a["tolerance"] for a in shape["agreements"])


def test_the_result_is_stamped(quick):
    result, text = quick
    assert {"commit", "dirty", "machine", "date", "versions"} <= set(result["stamp"])
    assert result["stamp"]["versions"]["torch"] is not None
    assert result["stamp"]["date"].endswith("UTC")
    assert result["settings"]["threads"] == 1
    assert result["settings"]["environment"]["OMP_NUM_THREADS"] == "1"
    assert "glibc.malloc.mmap_threshold" in text
    if result["settings"]["processors"] is not None:
        assert len(result["settings"]["processors"]) == 1


@pytest.mark.parametrize("argv", [["--rounds", "0"], ["--threads", "0"], ["--save", "/dev/null/x"]])
def test_a_mistake_is_one_sentence_before_anything_is_measured(argv, capfd):
    assert main(["bench", "encoding", "--quick", *argv]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("lrpe: ")
    assert captured.err.count("\n") == 1


def test_json_is_printed_instead_of_text(monkeypatch, capsys):
    monkeypatch.setattr("lrpe.cli.bench.measure_apart", lambda *_, **__: ({"benchmark": "encoding"}, "text"))
    assert main(["bench", "encoding", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"benchmark": "encoding"}
    assert main(["bench", "encoding"]) == 0
    assert capsys.readouterr().out == "text\n"
