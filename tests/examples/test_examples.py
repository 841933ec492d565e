"""Every example runs, and shows what its docstring says."""

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    """Run an example as its command does; returns what it printed."""

    def run_example(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with torch.random.fork_rng():
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run_example


def test_no_example_is_left_out():
    here = Path(__file__).read_text(encoding="utf-8")
    missing = [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in here]
    assert not missing


def test_encoding_by_hand_shows_the_law_an_idea_that_breaks_it_and_a_derivation(run):
    printed = run("encode_by_hand.py")
    assert "FAILS" in printed
    assert "W_1⁵ to within" in printed


def test_the_streaming_decoder_streams_what_the_whole_pass_would_give(run):
    printed = run("streaming_decoder.py", "--steps", "5", "--bytes", "20")
    apart = float(printed.partition("prefill and steps: ")[2].split()[0])
    assert apart < 1e-4
    assert "after every one of 20 bytes" in printed


def test_a_model_swapped_to_linear_attention_learns_the_order_of_two_marks(run):
    printed = run("swap_into_a_model.py", "--steps", "80")
    assert "Swapped 2 layers" in printed
    assert int(printed.partition("Right on ")[2].partition("%")[0]) > 80


def test_a_patched_transformers_model_starts_where_it_was_and_learns_with_linear_attention(run):
    printed = run("patch_a_transformers_model.py", "--steps", "10")
    assert float(printed.partition("differ by ")[2].split()[0]) < 1e-5
    swapped, trained = (float(printed.partition(f"{word} ")[2].split()[0]) for word in ("softmax,", "swap,"))
    assert trained < swapped
    assert "It generated 20 tokens from a state of 1,088 numbers" in printed


def test_the_picture_of_token_steps_starts_from_equal_steps_and_is_written(run, tmp_path):
    printed = run("picture_token_steps.py", "--steps", "3", "--output", str(tmp_path / "steps.png"))
    assert "every word turns by 0.464 and decays by 0.969" in printed  # α = 10000^(-1/12) and r = 1 - 2^-5
    rows = dict(line.strip().split(": turns by ") for line in printed.splitlines() if ": turns by " in line)
    assert rows["the"] != rows["loop"]
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("own_registries")
def test_two_encodings_of_ones_own_are_verified_trained_exported_and_drawn(run, tmp_path):
    printed = run("my_encodings.py", "--out", str(tmp_path))
    assert printed.count("  holds\n") > 10
    assert "FAILS" not in printed
    assert "flip, as loaded: Flip(dim=8), steps: None" in printed
    assert "steps: BoundedSteps(key_heads=2)" in printed
    for name in ("flip", "unhurried"):
        assert (tmp_path / "exported" / name / "lrpe_plugin_my_encodings.py").is_file()
    assert '"flip"' in (tmp_path / "explorer.html").read_text()


def test_the_trainer_trains_a_model_that_loads_and_goes_on_from_its_checkpoint(run, tmp_path):
    options = ("--width", "32", "--output", str(tmp_path))
    printed = run("train_with_trainer.py", "--steps", "6", *options)
    bits = [float(line.partition(": ")[2].split()[0]) for line in printed.splitlines() if line.startswith("step ")]
    assert len(bits) == 6
    assert bits[-1] < bits[0] < 9
    assert "it writes:\n    def __init__(self, " in printed
    assert AutoModelForCausalLM.from_pretrained(tmp_path).config.hidden_size == 32
    resumed = run("train_with_trainer.py", "--steps", "8", "--resume", *options)
    assert "step 8 of 8" in resumed
    assert "step 6 of 8" not in resumed


def test_a_masked_language_model_becomes_a_classifier_with_a_new_head(run):
    printed = run("finetune_classifier.py", "--pretrain", "2", "--steps", "30")
    assert "New weights: classifier.labels.bias, classifier.labels.weight." in printed
    assert int(printed.partition("Right on ")[2].partition("%")[0]) > 55


def test_every_row_of_the_comparison_trains_and_a_saved_run_is_not_run_again(run, tmp_path):
    options = ("--steps", "1", "--processes", "1", "--save", str(tmp_path / "runs.json"))
    first = run("compare_normalizers.py", *options)
    saved = json.loads((tmp_path / "runs.json").read_text())
    assert len(saved) > 10
    assert all(record["failed"] is None and record["bits"] for record in saved)
    again = run("compare_normalizers.py", *options)
    assert "step 1: " in first
    assert "step 1: " not in again
    assert first.splitlines()[-1] == again.splitlines()[-1]
