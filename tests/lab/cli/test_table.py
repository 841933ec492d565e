"""The commands about tables as a person types and sees them: lrpe table and lrpe demo."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lrpe.lab.cli import main
from lrpe.lab.cli.table import MakeTable
from lrpe.lab.cli.words import take_dotted
from lrpe.lab.experiments import run as running
from lrpe.lab.experiments.methods import METHODS, SEVEN
from lrpe.lab.experiments.tables import title_of

pytestmark = pytest.mark.slow
SMOKE = ["--scale", "smoke"]


def test_a_table_is_printed_and_written_in_every_format(runs, capsys):
    words = ["table", "lm", *SMOKE, "--rows", "base,type2", "--columns", "wikitext103", "--seeds", "0,1"]
    assert main([*words, "--settings", "fair,authors", "--runs", str(runs), "--processes", "2"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^Type 2 +\d+\.\d\d ± \d+\.\d\d [ *·] +\d+\.\d\d ± \d+\.\d\d", shown, re.MULTILINE)
    assert "bigrams, counted" in shown
    assert "Python's library validation ↓" in shown
    assert re.search(r"on other data than ours.*^Type 2 +31\.95", shown, re.MULTILINE | re.DOTALL)
    assert "its figures mean nothing" in shown
    folder = runs / "tables" / "lm-smoke"
    names = {path.name for path in folder.iterdir()}
    assert names >= {"table.txt", "table.json", "index.html", "fair.md", "fair.tex", "authors.md", "paper.md"}
    assert {path.suffix for path in folder.iterdir()} >= {".svg", ".png"}
    data = json.loads((folder / "table.json").read_text())
    assert set(data["settings"]["fair"]["columns"][0]["figures"]) == {"base", "type2", "unigrams", "bigrams"}
    assert data["settings"]["fair"]["columns"][0]["paper"] == {}
    assert data["paper"]["columns"][0]["figures"] == {"base": 33.94, "type2": 31.95}
    page = (folder / "index.html").read_text()
    # scores, seconds and two tests against Base in each setting, and the paper's
    assert page.count("<table>") == 9
    assert page.count("<figure>") == 4  # curves for readers without JavaScript, and the angles that Type 2 learned
    assert page.count('<figure class="chart"') == 2
    assert page.count("Type 2 on stdlib, seed 0: learned angles against their initial values.</figcaption>") == 2
    assert not re.search(r"(src|href)=.https?://", page)


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("glue", "base,type2"),
        ("imagenet", "rope"),
        ("lra", "per,softmax"),
        ("basis", "householder,odd-even"),
        ("normalizer", "spe,cosine*unitary"),
        ("length", "recommended,rope,rope+yarn"),
        ("position", "recommended,rope,rope+yarn"),
    ],
)
def test_every_other_table_is_printed_with_its_pictures(table, rows, runs, capsys):
    columns = {"glue": "wikibook,glue-cola", "lra": "lra-text,lra-image"}.get(table, "")
    words = ["--rows", rows, "--columns", columns, "--runs", str(runs), "--out", str(runs / table)]
    assert main(["table", table, *SMOKE, *words]) == 0
    shown = capsys.readouterr().out
    for row in rows.split(","):
        assert re.search(rf"^{re.escape(title_of(row))} +\S", shown, re.MULTILINE), row
    assert list((runs / table).glob("fair-*.png"))
    page = (runs / table / "index.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "Seconds per update" in page
    captions = [f"stdlib {name}: validation perplexity" for name in ("Unitary", "Permutation")]
    assert table != "basis" or all(caption in page for caption in captions)
    learned = re.search(r"type2|householder|unitary|recommended", rows)
    assert bool(list((runs / table).glob("*-angles.png"))) == bool(learned)


@pytest.mark.parametrize(("column", "row"), [("lra-listops", "Type 1"), ("imagenet", "PER")])
def test_normalisers_are_compared_by_accuracy_too(column, row, runs, capsys):
    rows = {"Type 1": "type1", "PER": "per"}[row]
    words = ["--rows", rows, "--columns", column, "--runs", str(runs), "--out", str(runs / "norms")]
    assert main(["table", "normalizer", *SMOKE, *words]) == 0
    shown = capsys.readouterr().out
    assert re.search(rf"^{row}( +\d+\.\d\d){{6}} *$", shown, re.MULTILINE), shown
    assert "majority class" in shown


def test_runs_that_were_scored_before_positions_were_measured_are_scored_again(runs, capsys):
    words = ["--rows", "base", "--runs", str(runs), "--out", str(runs / "by-position")]
    assert main(["table", "length", *SMOKE, *words]) == 0
    results = runs / "stdlib" / "smoke-fair-lengths" / "base-seed0" / "results.json"
    today = json.loads(results.read_text())
    before = {name: {k: v for k, v in split.items() if "octave" not in k} for name, split in today.items()}
    results.write_text(json.dumps(before))
    assert main(["table", "position", *SMOKE, *words]) == 0
    said = capsys.readouterr()
    assert "has no perplexity by position yet. Scoring the run again." in said.err
    assert re.search(r"^Base( +\d+\.\d\d){4} *$", said.out, re.MULTILINE)
    assert json.loads(results.read_text()) == today


def test_a_table_does_not_show_the_results_of_another_configuration(runs, trained, capsys):
    words = ["table", "lm", *SMOKE, "--rows", "type2", "--columns", "stdlib", "--runs", str(runs)]

    def figures(*changes):
        assert main([*words, *changes]) == 0
        return re.search(r"^Type 2 .*", capsys.readouterr().out, re.MULTILINE)[0]

    plain = figures()
    assert figures("--model.decay", "spread") != plain
    assert figures("--model.decay", "null") == plain  # the row has none either, but it is a run of its own
    assert figures("--training.workers", "1") == plain
    names = {path.name for path in (runs / "stdlib").iterdir()}
    assert len([name for name in names if re.fullmatch(r"smoke-fair-decay-(spread|null)-[0-9a-f]{8}", name)]) == 2
    variant = [*words, "--experiment.variant", "mine"]
    assert main(variant) == 0
    assert main([*variant, "--training.optimization.rate", "1e-2"]) == 2
    assert "another configuration (training.optimization.rate: 0.001 there, 0.01 now" in capsys.readouterr().err


def test_what_breaks_a_cell_is_told_and_the_others_are_trained(runs, monkeypatch, capsys):
    scored = running.run

    def run_or_break(cell, *rest):
        if cell.method == "base":
            raise RuntimeError("out of memory")
        return scored(cell, *rest)

    monkeypatch.setattr(running, "run", run_or_break)
    words = ["table", "lm", *SMOKE, "--rows", "base,rope", "--columns", "stdlib", "--seeds", "7", "--runs", str(runs)]
    assert main(words) == 1
    shown = capsys.readouterr().out
    assert "failed: stdlib/smoke-fair/base-seed7: RuntimeError: out of memory" in shown
    assert re.search(r"^RoPE +\d+\.\d\d", shown, re.MULTILINE)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_data_that_cannot_be_read_are_reported_once_and_the_other_columns_are_trained(processes, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    words = ["table", "lm", *SMOKE, "--rows", "base,rope,type2", "--columns", "wikitext2,stdlib"]
    where = ["--data", f"wikitext2={tmp_path / 'empty'}", "--runs", str(tmp_path / "runs")]
    assert main([*words, *where, "--processes", processes]) == 1
    shown = capsys.readouterr()
    assert shown.err.count("there is none at") == 1
    cells = ", ".join(f"wikitext2/smoke-fair/{row}-seed0" for row in ("base", "rope", "type2"))
    assert shown.out.count(f"failed: {cells}: Text files end in") == 1
    assert not (tmp_path / "runs" / "wikitext2").exists()
    assert re.search(r"^RoPE +\d+\.\d\d", shown.out, re.MULTILINE)


def test_a_table_whose_data_are_gone_shows_what_was_trained_on_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path / "cache"))
    text = "".join(f"sentence {k} of a text\n" for k in range(3000))
    for split in ("train", "valid", "test"):
        (tmp_path / "data" / f"wiki.{split}.tokens").parent.mkdir(exist_ok=True)
        (tmp_path / "data" / f"wiki.{split}.tokens").write_text(text)
    words = ["table", "lm", *SMOKE, "--rows", "base,rope", "--columns", "wikitext2,stdlib"]
    words += ["--data", f"wikitext2={tmp_path / 'data'}", "--runs", str(tmp_path / "runs")]
    assert main(words) == 0
    for folder in ("data", "cache"):
        shutil.rmtree(tmp_path / folder)
    (tmp_path / "data").mkdir()
    capsys.readouterr()
    assert main([*words, "--seeds", "0,1"]) == 1
    shown = capsys.readouterr().out
    assert "failed: wikitext2/smoke-fair/base-seed1, wikitext2/smoke-fair/rope-seed1: " in shown
    (row,) = re.findall(r"^RoPE +(.*)", shown, re.MULTILINE)
    assert len(re.findall(r"\d+\.\d\d", row)) == 6  # two of the seed that is there, and two means with deviations


def test_a_method_that_is_defined_anew_is_another_run(runs, monkeypatch, capsys):
    words = ["train", "stdlib", *SMOKE, "--method", "cosformer", "--runs", str(runs)]
    assert main(words) == 0
    defined = METHODS["cosformer"]
    monkeypatch.setitem(METHODS, "cosformer", replace(defined, fields=defined.fields | {"decay": "spread"}))
    assert main(words) == 2
    assert "another configuration (resolved.decay:" in capsys.readouterr().err


def test_a_cell_that_fails_is_named_and_the_others_are_there(runs, capsys):
    words = ["table", "lm", *SMOKE, "--rows", "base,rope", "--columns", "stdlib", "--runs", str(runs)]
    failing = [
        "--training.optimization.rate",
        "1e30",
        "--training.optimization.clip",
        "0",
        "--experiment.variant",
        "fast",
    ]
    code = main([*words, *failing])
    shown = capsys.readouterr()
    assert code == 1
    assert "failed: stdlib/smoke-fair-fast/base-seed0: The loss became" in shown.out


def test_a_dry_run_shows_cost_and_departures_and_trains_nothing(tmp_path, capsys):
    words = ["table", "glue", "--scale", "paper", "--rows", "base,type2", "--dry-run", "--tflops", "100"]
    assert main([*words, "--runs", str(tmp_path / "runs")]) == 0
    shown = capsys.readouterr().out
    assert "18 runs" in shown
    assert "Times are at 100 TFLOP/s, from --tflops" in shown
    assert re.search(r"18 runs, \d+ h in all", shown)
    assert "STS-B reports Pearson's correlation" in shown
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["table"], "lrpe table takes exactly one table; got none"),
        (["table", "lmm"], "Did you mean 'lm'"),
        (["table", "lm", "--rows", "tpye2"], "Did you mean 'type2'"),
        (["table", "lm", "--columns", "bookss"], "Did you mean 'books'"),
        (["table", "lm", "--settings", "faire"], "Did you mean 'fair'"),
        (["table", "lm", "--seeds", "one"], "Each of --seeds must be a whole number from 0"),
        (["table", "lm", "--scale", "smal"], "Did you mean 'small'"),
        (["table", "lm", "--data", "books"], "--data must be NAME=PATH"),
        (["table", "lm", "--data", "books=nowhere"], "got books='nowhere'"),
        (["table", "lm", "--data", "boks=here"], "Did you mean 'books'"),
        (["table", "lra", "--data", "lra-retrieval=citations:nowhere"], "got lra-retrieval='citations:nowhere'"),
        (["table", "lra", "--data", "lra-text=citations:here", "--dry-run"], "must be of kind sequence; got citations"),
        (["table", "length", "--rows", "type2+yran"], "Did you mean 'yarn'"),
        (["train", "wikitex"], "Did you mean"),
        (
            ["train", "stdlib", "--training.evaluate_every", "0"],
            "evaluate_every must be at least 1; got evaluate_every=0",
        ),
        (["train", "stdlib", "--training.optimization.betas", "[0.9]"], "betas must have 2 values; got [0.9]"),
        (["train", "lra-text", "--experiment.lengths", "[2]"], "lengths must be empty, except for language models"),
        (["train", "stdlib", "--method", "type4"], "Did you mean"),
        (["train", "stdlib", "--model.norm"], "needs a value"),
        (["verify", "--model.norm", "rms"], "unrecognized arguments"),
    ],
)
def test_a_mistake_gets_a_sentence(words, said, capsys):
    try:
        code = main(words)
    except SystemExit as exit:
        code = exit.code
    assert code == 2
    assert said in capsys.readouterr().err


def test_the_demo_is_the_first_table_small(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(MakeTable, "run", lambda self: asked.append(self) or 0)
    assert main(["demo", "--runs", "there", "--seed", "3", "--processes", "2"]) == 0
    assert main(["demo", "--updates", "60"]) == 0
    plain, shorter = asked
    assert (plain.name, plain.columns, plain.scale, plain.seeds) == (["lm"], "", "demo", "3")
    assert plain.rows.split(",") == [*SEVEN, "recommended", "softmax"]
    assert (plain.runs, plain.processes, plain.changes) == (Path("there"), 2, {})
    assert shorter.changes["training.optimization.updates"] == "60"
    first = shorter.plan("lm").experiments[0]
    assert first.training.optimization.updates == 60
    assert first.name == "stdlib/demo-fair-60-updates/base-seed0"
    assert main(["demo", "--updates", "2"]) == 2
    assert "--updates must be a whole number from 6" in capsys.readouterr().err


def test_the_demos_table_has_every_row_and_a_page(runs, capsys):
    brief = ["--experiment.scored", "1", "--training.evaluation_batches", "1", "--training.evaluate_every", "3"]
    brief += ["--training.optimization.updates", "3", "--training.optimization.warmup", "1"]
    assert main(["table", "lm", "--scale", "demo", "--runs", str(runs), *brief]) == 0
    shown = capsys.readouterr().out
    for row in SEVEN:
        assert re.search(rf"^{METHODS[row].title} +\d+\.\d\d", shown, re.MULTILINE), row
    assert "bigrams, counted" in shown
    assert "One seed (0), so no difference is tested: a small one may be due to the seed." in shown
    page = (runs / "tables" / "lm-demo" / "index.html").read_text(encoding="utf-8")
    assert page.count("<tr>") == 1 + len(SEVEN) + 2 + 2 * (1 + len(SEVEN))  # scores with counts, times, the paper's


def test_dotted_keys_are_taken_out_of_the_words():
    assert take_dotted(["train", "--a.b", "1", "--out", "x.y", "--c.d=e=f"]) == (
        ["train", "--out", "x.y"],
        {"a.b": "1", "c.d": "e=f"},
    )
