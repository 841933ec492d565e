"""What a person types and sees: lrpe table, train, evaluate, generate, runs, demo."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lrpe.lab.cli import main
from lrpe.lab.cli.table import MakeTable
from lrpe.lab.cli.words import take_dotted
from lrpe.lab.experiments import cells
from lrpe.lab.experiments.listing import find_runs
from lrpe.lab.experiments.methods import METHODS, SEVEN
from lrpe.lab.experiments.tables import title_of

pytestmark = pytest.mark.slow

SMOKE = ["--scale", "smoke"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def trained(runs):
    assert main(["train", "stdlib", "--method", "type2", *SMOKE, "--runs", str(runs)]) == 0
    return runs / "stdlib" / "smoke-fair" / "type2-seed0"


def test_a_run_is_a_folder_with_all_there_is_to_know_of_it(trained):
    names = {path.name for path in trained.iterdir()}
    assert names >= {
        "config.yaml", "metrics.jsonl", "train.log", "environment.json", "results.json", "checkpoints", "last", "best",
        "tokenizer",
    }  # fmt: skip
    about = json.loads((trained / "environment.json").read_text())
    assert about["metric"] == "perplexity"
    assert len(about["data"]["content"]) == 64
    results = json.loads((trained / "results.json").read_text())
    assert results["validation"]["perplexity"] > 1


def test_a_run_is_scored_again_with_the_same_figures(trained, capsys):
    assert main(["evaluate", str(trained), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert main(["evaluate", str(trained)]) == 0
    assert "word_perplexity over 1,000,000, bits_per_byte" in capsys.readouterr().out
    before = json.loads((trained / "results.json").read_text())
    assert again["test"] == pytest.approx(before["test"])
    assert main(["evaluate", str(trained.parent)]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_run_writes_on(trained, capsys):
    assert main(["generate", str(trained), "--prompt", "def f(x):", "--tokens", "12"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("def f(x):")
    assert len(text) > len("def f(x):\n")
    assert main(["generate", str(trained.parent)]) == 2
    assert "has neither" in capsys.readouterr().err


def test_runs_are_listed_with_their_status_and_best_figure(trained, runs, capsys):
    assert main(["runs", "--runs", str(runs)]) == 0
    assert re.search(r"stdlib/smoke-fair/type2-seed0 +finished +3 +perplexity \d", capsys.readouterr().out)
    assert main(["runs", "--runs", str(runs / "nowhere")]) == 2
    assert "--runs must be a folder" in capsys.readouterr().err


def test_a_run_is_exported_with_its_tokeniser(trained, tmp_path, capsys):
    assert main(["export", str(trained), "--to", str(tmp_path / "model")]) == 0
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {p.name for p in (tmp_path / "model").iterdir()}


def test_a_folder_that_vanishes_while_runs_are_looked_for_is_passed_over(tmp_path, monkeypatch):
    for name in ("gone", "here"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").touch()
    scan = os.scandir
    monkeypatch.setattr("os.scandir", lambda path: scan("/nowhere" if str(path).endswith("gone") else path))
    assert find_runs(tmp_path) == [tmp_path / "here"]


def test_runs_are_reported_on_a_page(trained, runs, tmp_path, capsys):
    assert main(["report", str(trained), "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert page.count("<figure>") == 2  # the curve, and the angles that Type 2 learned
    assert "seconds per update" in page
    assert "optimization" in page
    assert {path.suffix for path in (tmp_path / "page").iterdir()} == {".html", ".svg", ".png"}
    assert main(["report", str(tmp_path / "nothing")]) == 2
    assert "RUN must be a folder" in capsys.readouterr().err


def test_keys_change_the_experiment_and_a_typo_names_the_nearest(trained, runs, tmp_path, capsys):
    changed = ["--training.optimization.rate", "1e-2", "--model.hidden_size=32", "--out", str(tmp_path / "run")]
    assert main(["train", "stdlib", *SMOKE, "--runs", str(runs), *changed]) == 0
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert "rate: 0.01" in config
    assert json.loads((tmp_path / "run" / "last" / "config.json").read_text())["hidden_size"] == 32
    capsys.readouterr()
    for key, value, said in [
        ("training.optimisation.rate", "1", "Did you mean 'training.optimization'"),
        ("training.optimization.rat", "1", "Did you mean 'training.optimization.rate'"),
        ("training.optimization.rate", "fast", "training.optimization.rate must be a number; got 'fast'"),
        ("training.precision", "float8", "Did you mean"),
        ("model.hiden_size", "8", "Did you mean 'hidden_size'"),
        ("training.seed", "1.5", "training.seed must be a whole number; got 1.5"),
    ]:
        assert main(["train", "stdlib", *SMOKE, "--out", str(tmp_path / "other"), f"--{key}", value]) == 2
        assert said in capsys.readouterr().err, key
    assert main(["train", "stdlib", *SMOKE, "--out", str(trained), "--model.seed", "5"]) == 2
    assert "another configuration (model.seed: absent there, 5 now" in capsys.readouterr().err


def test_the_configuration_of_a_run_repeats_it(trained, runs, tmp_path, capsys):
    config = ["--config", str(trained / "config.yaml")]
    assert main(["train", *config, "--out", str(tmp_path / "again"), "--runs", str(runs)]) == 0
    first, again = (json.loads((folder / "results.json").read_text()) for folder in (trained, tmp_path / "again"))
    assert first == again
    (tmp_path / "bad.yaml").write_text("- a list")
    assert main(["train", "stdlib", "--config", str(tmp_path / "bad.yaml")]) == 2
    assert "keys and values" in capsys.readouterr().err
    assert main(["train"]) == 2


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
    assert page.count("<table>") == 5  # scores and seconds in each setting, and the paper's
    assert page.count("<figure>") == 4  # curves, and the angles that Type 2 learned
    assert page.count("Type 2 on stdlib, seed 0: learned angles against their initial values.</figcaption>") == 2
    assert not re.search(r"<script|(src|href)=.https?://", page)


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("glue", "base,type2"),
        ("imagenet", "rope"),
        ("lra", "per,softmax"),
        ("basis", "householder,odd-even"),
        ("normalizer", "spe,cosine*unitary"),
        ("length", "recommended,rope,rope+yarn"),
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


def test_null_is_a_change_and_never_shows_the_old_result(runs, tmp_path, capsys):
    words = ["train", "stdlib", "--method", "recommended", *SMOKE, "--runs", str(runs)]
    assert main(words) == 0
    before = json.loads((runs / "stdlib" / "smoke-fair" / "recommended-seed0" / "results.json").read_text())
    assert main([*words, "--model.decay", "null"]) == 0
    (changed,) = (runs / "stdlib").glob("smoke-fair-decay-null-*/recommended-seed0/results.json")
    assert json.loads(changed.read_text())["validation"] != before["validation"]
    capsys.readouterr()
    assert (
        main([*words, "--model.decay", "null", "--out", str(changed.parents[2] / "smoke-fair/recommended-seed0")]) == 2
    )
    assert "model.decay: absent there, null now; resolved.decay: spread there, null now" in capsys.readouterr().err


def test_a_new_run_begins_with_the_weights_of_a_checkpoint(trained, runs, tmp_path, capsys):
    words = [
        "train",
        "stdlib",
        "--method",
        "type2",
        *SMOKE,
        "--runs",
        str(runs),
        "--training.optimization.rate",
        "1e-30",
    ]
    assert main([*words, "--from", str(trained)]) == 0
    (folder,) = (runs / "stdlib").glob("smoke-fair-weights-*/type2-seed0")
    before, after = load_file(trained / "best" / "model.safetensors"), load_file(folder / "last" / "model.safetensors")
    assert all(torch.allclose(before[name], after[name]) for name in before)
    assert main([*words, "--from", str(trained / "best")]) == 0  # the same weights: the same run, which has ended
    capsys.readouterr()
    assert main([*words, "--from", str(trained), "--model.hidden_size", "32"]) == 2
    assert "are not those of this model" in capsys.readouterr().err
    assert main([*words, "--from", str(tmp_path)]) == 2
    assert "has neither" in capsys.readouterr().err


def test_a_name_does_not_lead_out_of_the_folder_of_runs(trained, tmp_path, capsys):
    for key in ("variant", "method", "setting", "column"):
        assert (
            main(["train", "stdlib", *SMOKE, "--runs", str(tmp_path / "runs"), f"--experiment.{key}", "../../x"]) == 2
        )
        assert f"{key} names a folder" in capsys.readouterr().err
    run = shutil.copytree(trained, tmp_path / "run", symlinks=True)
    for key in ("column: stdlib", "variant: ''", "method: type2"):
        config = (trained / "config.yaml").read_text().replace(key, f"{key.partition(':')[0]}: {tmp_path}/elsewhere")
        (run / "config.yaml").write_text(config)
        assert main(["report", str(run), "--out", str(tmp_path / "page")]) == 2
        assert "names a folder" in capsys.readouterr().err
    assert not list(tmp_path.glob("elsewhere*"))


def test_runs_of_another_configuration_are_no_seeds_of_a_method(trained, runs, tmp_path):
    words = ["train", "stdlib", *SMOKE, "--runs", str(runs), "--out", str(tmp_path / "fast")]
    assert main([*words, "--training.optimization.rate", "1e-2"]) == 0
    assert main(["report", str(trained), str(tmp_path / "fast"), "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "Type 2, configuration 2" in page
    assert "±" not in page
    assert "bands" not in page


def test_what_breaks_a_cell_is_told_and_the_others_are_trained(runs, monkeypatch, capsys):
    scored = cells.run

    def run_or_break(cell, *rest):
        if cell.method == "base":
            raise RuntimeError("out of memory")
        return scored(cell, *rest)

    monkeypatch.setattr(cells, "run", run_or_break)
    words = ["table", "lm", *SMOKE, "--rows", "base,rope", "--columns", "stdlib", "--seeds", "7", "--runs", str(runs)]
    assert main(words) == 1
    shown = capsys.readouterr().out
    assert "failed: stdlib/smoke-fair/base-seed7: RuntimeError: out of memory" in shown
    assert re.search(r"^RoPE +\d+\.\d\d", shown, re.MULTILINE)


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
        (["table", "length", "--rows", "type2+yran"], "Did you mean 'yarn'"),
        (["train", "wikitex"], "Did you mean"),
        (["train", "stdlib", "--training.evaluate_every", "0"], "evaluate_every must be at least 1; got 0"),
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
    assert (plain.name, plain.columns, plain.scale, plain.seeds, plain.rows) == (["lm"], "", "demo", "3", "")
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
    assert "One seed (0): small differences are not significant." in shown
    page = (runs / "tables" / "lm-demo" / "index.html").read_text(encoding="utf-8")
    assert page.count("<tr>") == 1 + len(SEVEN) + 2 + 2 * (1 + len(SEVEN))  # scores with counts, times, the paper's


def test_dotted_keys_are_taken_out_of_the_words():
    assert take_dotted(["train", "--a.b", "1", "--out", "x.y", "--c.d=e=f"]) == (
        ["train", "--out", "x.y"],
        {"a.b": "1", "c.d": "e=f"},
    )
