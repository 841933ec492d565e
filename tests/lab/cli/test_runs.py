"""The commands about runs as a person types and sees them: lrpe train, evaluate, generate, runs, export, report."""

import json
import os
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file

from lrpe.lab.cli import main
from lrpe.lab.experiments.runs_on_disk import find_runs

pytestmark = pytest.mark.slow
SMOKE = ["--scale", "smoke"]


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
    assert "model.decay: absent there, null now; resolved.decay: gated there, null now" in capsys.readouterr().err


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
