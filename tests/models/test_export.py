"""An exported folder is loaded by anyone: with lrpe, or with the code that it carries."""

import json
import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from lrpe import LrpeError
from lrpe.cli import main
from lrpe.models import LrpeForCausalLM, LrpeForPairClassification
from lrpe.models.export import export
from lrpe.models.flatten import closure, imported
from tests.models.tiny import draw_ids, tiny

WITHOUT_LRPE = """
import sys
sys.modules["lrpe"] = None
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True)
ids = torch.tensor([[1, 2, 3, 4, 5]])
print(type(model).__module__)
print(model(ids).logits[0, -1].tolist())
print(model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)[0].tolist())
"""


@pytest.fixture
def saved(tmp_path):
    model = tiny(LrpeForCausalLM).float()
    model.save_pretrained(tmp_path / "run" / "best")
    for name in ("tokenizer.json", "chat_template.jinja", "trainer_state.json", "optimizer.pt"):
        (tmp_path / "run" / "best" / name).write_text("{}")
    return model, tmp_path / "run"


def test_a_run_is_exported_with_its_tokenizer_and_a_card(saved, tmp_path, capsys):
    model, run = saved
    assert main(["export", str(run), "--to", str(tmp_path / "out" / "mine")]) == 0
    out = tmp_path / "out" / "mine"
    found = {file.name for file in out.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "README.md"} <= found
    assert not {"trainer_state.json", "optimizer.pt"} & found
    assert "README.md says how" in capsys.readouterr().out
    assert "import lrpe.models" in (out / "README.md").read_text()
    ids = draw_ids(1, 6)
    assert torch.equal(AutoModelForCausalLM.from_pretrained(out).eval()(ids).logits, model(ids).logits)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["mine"]  # nothing temporary stays


def test_a_folder_with_its_code_is_loaded_without_lrpe(saved, tmp_path):
    model, run = saved
    out = export(run, tmp_path / "out", remote_code=True)
    environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", WITHOUT_LRPE, str(out)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    module, logits, tokens = done.stdout.strip().splitlines()
    assert module.startswith("transformers_modules")
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    torch.testing.assert_close(torch.tensor(json.loads(logits)), model(ids).logits[0, -1])
    ours = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)
    assert json.loads(tokens) == ours[0].tolist()


def test_no_code_from_the_folder_runs_unless_it_is_trusted(saved, tmp_path):
    out = export(saved[1], tmp_path / "out", remote_code=True)
    for file in out.glob("*.py"):
        file.write_text("raise RuntimeError('this must not run')")
    assert type(AutoConfig.from_pretrained(out)).__module__ == "lrpe.models.configuration"
    assert type(AutoModelForCausalLM.from_pretrained(out)) is LrpeForCausalLM


def test_the_code_that_a_model_carries_is_ours_whole_and_imports_nothing_else_of_ours(tmp_path):
    model = tiny(LrpeForPairClassification)
    model.save_pretrained(tmp_path / "model")
    out = export(tmp_path / "model", tmp_path / "out", remote_code=True)
    files = {file.stem: file.read_text() for file in out.glob("*.py")}
    assert "lrpe_encodings_orthogonal" in files
    assert all(imported(name, source) == [] for name, source in files.items())
    assert json.loads((out / "config.json").read_text())["auto_map"]["AutoModel"].endswith("LrpeForPairClassification")


def test_code_that_is_left_out_is_not_asked_for(saved, tmp_path):
    with_code = export(saved[1], tmp_path / "with", remote_code=True)
    without = export(with_code, tmp_path / "without")
    assert json.loads((without / "config.json").read_text()).get("auto_map") is None
    assert not list(without.glob("*.py"))


def test_the_card_of_a_class_without_an_auto_class_names_the_class(tmp_path):
    tiny(LrpeForPairClassification).save_pretrained(tmp_path / "model")
    out = export(tmp_path / "model", tmp_path / "out")
    assert 'LrpeForPairClassification.from_pretrained("out")' in (out / "README.md").read_text()


def test_what_cannot_be_exported_is_named(saved, tmp_path):
    _, run = saved
    with pytest.raises(LrpeError, match=r"has a config.json, and a run has one in best or last"):
        export(tmp_path / "nothing", tmp_path / "out")
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("all of it")
    with pytest.raises(LrpeError, match=r"new folder; .*full' is not empty"):
        export(run, full)
    assert (full / "thesis.txt").read_text() == "all of it"
    other = tmp_path / "llama"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(LrpeError, match="holds a model of type 'llama'"):
        export(other, tmp_path / "out")
    assert main(["export", str(run)]) == 2
    assert main(["export", "--to", str(tmp_path / "out")]) == 2


def test_a_package_imported_whole_is_no_flat_file():
    with pytest.raises(LrpeError, match="imports a package of ours whole"):
        imported("made.up", "import lrpe.encodings")
    with pytest.raises(LrpeError, match=r"lrpe.encodings is a package"):
        closure(["lrpe.encodings"])
