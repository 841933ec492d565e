import json
import os
from pathlib import Path

import pytest

import lrpe
from lrpe.errors import LrpeError
from lrpe.lab.benchmarks.attention import QUICK
from lrpe.lab.benchmarks.lines import Line, line_table
from lrpe.lab.benchmarks.sides import BIDIRECTIONAL, DEFAULT, OTHERS
from lrpe.lab.benchmarks.stages import LIMIT
from lrpe.lab.cli import main
from lrpe.lab.cli.bench import BenchAttention, BenchLength, BenchLoop, BenchTrain

pytestmark = pytest.mark.slow


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
    assert len(result["lines"]) == 4
    for line in result["lines"]:
        assert line["row"] in text
        assert line["verdict"] == ("pass" if line["figure"] <= line["goal"] else "short")
    assert "≤" not in text  # tiny shapes are not judged
    shown = line_table([Line(**line) for line in result["lines"]]).splitlines()[2:]
    for line, words in zip(result["lines"], map(str.split, shown), strict=True):
        assert {f"{line['goal']:g}", line["verdict"]} <= set(words)


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
    monkeypatch.setattr(
        "lrpe.lab.benchmarks.process.measure_apart", lambda *_, **__: ({"benchmark": "encoding"}, "text")
    )
    assert main(["bench", "encoding", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"benchmark": "encoding"}
    assert main(["bench", "encoding"]) == 0
    assert capsys.readouterr().out == "text\n"


@pytest.fixture(scope="module")
def attention(tmp_path_factory):
    """One quick run of the table of attention: its result, its text and its picture."""
    folder = tmp_path_factory.mktemp("bench")
    assert BenchAttention(quick=True, rounds=1, save=folder / "a" / "table", plot=folder / "b" / "table.png").run() == 0
    result = json.loads((folder / "a" / "table.json").read_text(encoding="utf-8"))
    text = (folder / "a" / "table.txt").read_text(encoding="utf-8")
    return result, text, (folder / "b" / "table.png").read_bytes()


def test_each_row_of_attention_prints_its_goal_its_figure_and_a_word(attention):
    result, text, _ = attention
    goals = [line for line in result["lines"] if line["goal"] is not None]
    # Per causal shape: ÷ SDPA, the limit and the torch engine; gated, selective, memory. Two threads if there are two.
    expected = 6 * len(QUICK.causal) + len(QUICK.bidirectional)
    assert len(goals) in (expected, expected + 1)
    assert "≤" not in text  # tiny shapes are not judged
    lines = [Line(**line) for line in result["lines"]]
    table = [line for line in line_table(lines).splitlines() if "≤" in line]
    for line, shown in zip(goals, table, strict=True):
        assert shown.startswith(line["row"])
        assert f"≤ {line['goal']:g}" in shown
        assert line["verdict"] in shown.split()
        if line["figure"] is None:
            assert line["verdict"] == "missing"
        else:
            assert line["verdict"] == ("pass" if line["figure"] <= line["goal"] else "short")


def test_every_side_of_attention_was_checked_first(attention):
    result, text, _ = attention
    checked = {side for agreement in result["agreements"] for side in agreement["sides"]}
    assert {DEFAULT, *OTHERS, BIDIRECTIONAL, "SDPA", "default, torch engine", "decoding step"} <= checked
    assert set(OTHERS) | {DEFAULT, "SDPA", LIMIT} <= {time["side"] for time in result["times"]}
    assert all(max(a["outputs"], a["gradients"]) <= a["tolerance"] for a in result["agreements"])
    assert "gave the right outputs and gradients" in text


def test_each_row_of_attention_names_the_engine_that_computed_it(attention):
    result, text, _ = attention
    measured = [line for line in result["lines"] if line["figure"] is not None]
    assert {line["engine"] for line in measured} <= set(lrpe.engines.status())
    (by_torch,) = {time["engine"] for time in result["times"] if time["side"] == "default, torch engine"} or {"torch"}
    assert by_torch == "torch"
    assert "engine" in text


def test_the_picture_of_attention_is_a_picture(attention):
    assert attention[2].startswith(b"\x89PNG\r\n\x1a\n")


def test_length_prints_each_doubling_with_its_goal_and_a_word(tmp_path, capfd):
    assert BenchLength(quick=True, rounds=1, json=True, plot=tmp_path / "length.png").run() == 0
    result = json.loads(capfd.readouterr().out)
    assert {point["side"] for point in result["points"]} == set(result["exponents"])
    assert all(point["seconds"] > 0 for point in result["points"])
    assert result["lines"]
    for line in result["lines"]:
        assert line["verdict"] == ("pass" if line["figure"] <= line["goal"] else "short")
    assert (tmp_path / "length.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize(
    "verb",
    [
        BenchAttention(rounds=0),
        BenchAttention(threads=0),
        BenchAttention(plot=Path("table.pdf")),
        BenchAttention(plot=Path("/dev/null/table.png")),
        BenchLength(longest=40),
        BenchTrain(rows="rope,type4"),
        BenchLength(save=Path("/dev/null/x")),
    ],
    ids=str,
)
def test_a_mistake_is_found_before_anything_is_measured(verb, monkeypatch):
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("measured all the same"))
    with pytest.raises(LrpeError):
        verb.run()


def test_training_is_timed_relative_to_base(tmp_path):
    verb = BenchTrain(quick=True, rounds=1, rows="type2", save=tmp_path / "train", plot=tmp_path / "train.svg")
    assert verb.run() == 0
    result = json.loads((tmp_path / "train.json").read_text(encoding="utf-8"))
    assert [row["method"] for row in result["rows"]] == ["base", "type2"]
    assert result["settings"]["threads"] == 1
    assert "Type 2" in (tmp_path / "train.txt").read_text(encoding="utf-8")
    assert "training steps ÷ Base" in (tmp_path / "train.svg").read_text(encoding="utf-8")


def test_the_loop_is_measured_through_the_command_line(tmp_path):
    assert BenchLoop(quick=True, rounds=2, save=tmp_path / "loop", plot=tmp_path / "loop.svg").run() == 0
    lines = json.loads((tmp_path / "loop.json").read_text(encoding="utf-8"))["lines"]
    assert all(line["verdict"] == ("pass" if line["figure"] <= line["goal"] else "short") for line in lines)
    assert (tmp_path / "loop.svg").exists()


def test_two_saved_results_are_compared(quick, tmp_path, capsys):
    result, _ = quick
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        file.write_text(json.dumps(result), encoding="utf-8")
    assert main(["bench", "compare", *map(str, files)]) == 0
    out = capsys.readouterr().out
    assert all(line["row"] in out for line in result["lines"])
    assert "slower" not in out
    assert main(["bench", "compare", *map(str, files), "--json"]) == 0
    assert {change["word"] for change in json.loads(capsys.readouterr().out)["changes"]} == {"within the noise"}


@pytest.mark.parametrize("files", [[], ["a.json"], ["a.json", "b.json", "c.json"], ["absent.json", "b.json"]])
def test_a_comparison_of_anything_else_is_one_sentence(files, capsys):
    assert main(["bench", "compare", *files]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("lrpe: ")
    assert captured.err.count("\n") == 1
