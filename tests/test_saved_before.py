"""Models and runs that an earlier version saved load, compute what they did, and resume.

The folders under ``tests/saved`` were written by commit 69d490e, the last before the library and its laboratory were
separated; ``expected.safetensors`` has the inputs and outputs that its models had then.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

import lrpe.adapt
import lrpe.models
from lrpe.lab.cli import main
from lrpe.models.saved import CLASSES, load_model

SAVED = Path(__file__).parent / "saved"
OURS = sorted(path.name for path in (SAVED / "models").glob("Lrpe*"))
REPLACED = sorted(path.name for path in (SAVED / "models").glob("llama-*"))


@torch.no_grad()
def assert_computes_what_it_did(model, folder: Path) -> None:
    expected = load_file(folder / "expected.safetensors")
    inputs = {name.removeprefix("input."): value for name, value in expected.items() if name != "output"}
    output = model.eval()(**inputs)
    first = output.logits if hasattr(output, "logits") else output.last_hidden_state
    torch.testing.assert_close(first, expected["output"])


@pytest.mark.parametrize("name", OURS)
def test_models_load_and_compute_what_they_did(name):
    folder = SAVED / "models" / name
    model = load_model(folder)
    assert type(model).__name__ == name
    assert_computes_what_it_did(model, folder)


def test_auto_classes_load_them_too():
    assert_computes_what_it_did(AutoModel.from_pretrained(SAVED / "models" / "LrpeModel"), SAVED / "models/LrpeModel")


@pytest.mark.parametrize("name", REPLACED)
def test_adapted_models_load_and_compute_what_they_did(name):
    folder = SAVED / "models" / name
    assert_computes_what_it_did(lrpe.adapt.from_pretrained(folder), folder)


def test_every_kind_of_model_is_among_them():
    assert set(OURS) == set(CLASSES)
    assert REPLACED == ["llama-attention", "llama-rotary"]


def test_an_interrupted_run_resumes_to_the_same_figures(tmp_path, capsys):
    folder = tmp_path / "run"
    shutil.copytree(SAVED / "run", folder, symlinks=True)
    line = ["train", "imagenet", "--data", "imagenet=here", "--method", "type2", "--scale", "smoke"]
    assert main([*line, "--out", str(folder)]) == 0
    updates = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = {each["update"]: each["loss"] for each in updates if "loss" in each}
    assert losses == pytest.approx({1: 2.423794746398926, 2: 2.08638858795166, 3: 2.080232620239258}, rel=1e-4)
    tested = json.loads((folder / "results.json").read_text())["test"]["loss"]
    assert tested == pytest.approx(2.395607143640518, rel=1e-4)
    remark = "This run was started by a version that learned angles α; it continues by learning log α"
    assert capsys.readouterr().err.count(remark) == (folder / "train.log").read_text().count(remark) == 1
