"""An exported folder is loaded by anyone: with lrpe, or with the code that it carries."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from lrpe import Identity, LrpeError
from lrpe.attention.feature_map import FEATURE_MAPS
from lrpe.encodings.config import ANGLES, BASES, MATRICES
from lrpe.encodings.family import FAMILY
from lrpe.lab.cli import main
from lrpe.lab.data.text.tokenizer import byte_level
from lrpe.models import LrpeForCausalLM, LrpeForPairClassification
from lrpe.models.export import export
from lrpe.models.remote_code import closure, imported
from lrpe.plugins import load_plugin
from tests.models.tiny import draw_ids, tiny

WITHOUT_LRPE = """
import sys
sys.modules["lrpe"] = None
import torch
from transformers import AutoModel, AutoModelForCausalLM
trunk = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True)
assert type(trunk).__name__ == "LrpeModel" and type(trunk).__module__.startswith("transformers_modules")
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True)
ids = torch.tensor([[1, 2, 3, 4, 5]])
print(type(model).__module__)
print(model(ids).logits[0, -1].tolist())
print(model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)[0].tolist())
"""
EXAMPLE = (Path(__file__).parents[2] / "examples" / "my_encodings.py").read_text()


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


def load_without_lrpe(out, tmp_path):
    """Return the module of the model, its logits and its tokens for WITHOUT_LRPE's text."""
    environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", WITHOUT_LRPE, str(out)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    module, logits, tokens = done.stdout.strip().splitlines()
    return module, torch.tensor(json.loads(logits)), json.loads(tokens)


@pytest.mark.slow
def test_a_folder_with_its_code_is_loaded_without_lrpe(saved, tmp_path):
    model, run = saved
    module, logits, tokens = load_without_lrpe(export(run, tmp_path / "out", remote_code=True), tmp_path)
    assert module.startswith("transformers_modules")
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    torch.testing.assert_close(logits, model(ids).logits[0, -1])
    ours = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)
    assert tokens == ours[0].tolist()


def save_with_plugin(tmp_path, *encodings, source=EXAMPLE):
    """Load a plug-in of this source, and save a model with its encodings."""
    (tmp_path / "mine.py").write_text(source)
    load_plugin(tmp_path / "mine.py")
    model = tiny(LrpeForCausalLM, encoding=list(encodings)).float()
    model.save_pretrained(tmp_path / "model")
    return model


@pytest.mark.slow
@pytest.mark.usefixtures("own_registries")
def test_the_code_of_a_plugin_is_carried_along_and_loads_without_lrpe(tmp_path):
    model = save_with_plugin(tmp_path, "flip", "unhurried")
    out = export(tmp_path / "model", tmp_path / "out", remote_code=True)
    assert "__main__" not in (out / "lrpe_plugin_mine.py").read_text()
    _, logits, _ = load_without_lrpe(out, tmp_path)
    torch.testing.assert_close(logits, model(torch.tensor([[1, 2, 3, 4, 5]])).logits[0, -1])


@pytest.mark.usefixtures("own_registries")
def test_without_code_a_plugin_is_a_file_that_the_card_says_how_to_run(tmp_path):
    save_with_plugin(tmp_path, "flip", "flip")
    out = export(tmp_path / "model", tmp_path / "out")
    assert (out / "mine.py").read_text() == EXAMPLE
    card = (out / "README.md").read_text()
    assert 'load_plugin("out/mine.py")' in card
    assert "- Encoding: a type of its own, P householder, Λ flip\n" in card


@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import lrpe", "must import names, as in `from lrpe.module import name`"),
        ("from lrpe import Householder", "lrpe is a package: import from the module"),
        ("from lrpe.lab.experiments.methods import METHODS", "must not import lrpe.lab.experiments.methods"),
    ],
)
def test_a_plugin_that_cannot_be_carried_along_is_refused(line, said, tmp_path):
    save_with_plugin(tmp_path, "flip", "type2", source=f"{EXAMPLE}\n{line}\n")
    with pytest.raises(LrpeError, match=f"{re.escape(said)}.*or export without remote_code"):
        export(tmp_path / "model", tmp_path / "out", remote_code=True)
    assert not (tmp_path / "out").exists()


def test_only_known_files_are_given_away(saved, tmp_path):
    _, run = saved
    for name in (
        "credentials.txt",
        ".env",
        "config.json.bak",
        "model.safetensors.old",
        "notes.json",
        "README.md",
        "code.py",
    ):
        (run / "best" / name).write_text("a secret")
    out = export(run, tmp_path / "out")
    own = {"config.json", "generation_config.json", "model.safetensors", "README.md"}
    assert {file.name for file in out.iterdir()} == own | {"tokenizer.json", "chat_template.jinja"}
    assert all("a secret" not in file.read_text(errors="replace") for file in out.iterdir())


@pytest.mark.parametrize("place", ["best/vocab.json", "tokenizer/vocab.json"])
def test_a_link_out_of_the_folder_is_not_followed(place, saved, tmp_path):
    _, run = saved
    (tmp_path / "id_rsa").write_text("a secret")
    (run / place).parent.mkdir(exist_ok=True)
    (run / place).symlink_to(tmp_path / "id_rsa")
    with pytest.raises(LrpeError, match=r"vocab.json' must not be a link out of the folder.*it links to .*id_rsa"):
        export(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_link_within_the_run_is_followed(saved, tmp_path):
    _, run = saved
    (run / "tokenizer").mkdir()
    (run / "tokenizer" / "vocab.json").write_text("{}")
    (run / "best" / "vocab.json").symlink_to(run / "tokenizer" / "vocab.json")
    assert (export(run, tmp_path / "out") / "vocab.json").read_text() == "{}"


REGISTERS = {
    "basis": (BASES, lambda c: Identity(c.head_dim), {"encoding": {"basis": "mine"}}),
    "position matrix": (MATRICES, MATRICES["orthogonal"], {"encoding": "identity*mine"}),  # a second name for ours
    "kind of angles": (ANGLES, lambda count, length: torch.ones(count), {"encoding": {"angles": "mine"}}),
    "feature map": (FEATURE_MAPS, lambda d: torch.nn.Softplus(), {"feature_map": "mine"}),
    "encoding": (FAMILY, lambda _: {"basis": "odd-even"}, {"encoding": ["type2", "mine"]}),
}


@pytest.mark.parametrize("kind", REGISTERS)
def test_what_somebody_registered_is_exported_without_code_alone(kind, tmp_path, monkeypatch):
    register, maker, fields = REGISTERS[kind]
    monkeypatch.setitem(register, "mine", maker)
    tiny(LrpeForCausalLM, **{"encoding": "type2"} | fields).float().save_pretrained(tmp_path / "model")
    with pytest.raises(
        LrpeError, match=rf"the {kind} 'mine' of .* was registered elsewhere.*Export without remote_code"
    ):
        export(tmp_path / "model", tmp_path / "out", remote_code=True)
    assert not (tmp_path / "out").exists()
    out = export(tmp_path / "model", tmp_path / "out")
    assert f"Import first what registers the {kind} 'mine'" in (out / "README.md").read_text()
    assert AutoModelForCausalLM.from_pretrained(out)(draw_ids(1, 4)).logits.isfinite().all()


def test_the_card_says_type_basis_and_tokenizer(tmp_path):
    mixed = ["type1", {"name": "rope", "base": 100.0}]
    tiny(LrpeForCausalLM, mixed).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    text = (export(tmp_path / "model", tmp_path / "out") / "README.md").read_text()
    assert "- Encoding of layers 0: Type 1, P householder, Λ unitary, learned geometric angles\n" in text
    assert "- Encoding of layers 1: Type 2, P identity, Λ orthogonal, fixed geometric angles\n" in text
    assert "- Tokenizer: GPT2Tokenizer\n" in text
    byte_level().save(tmp_path / "model")
    text = (export(tmp_path / "model", tmp_path / "bytes") / "README.md").read_text()
    assert "- Tokenizer: BPE with 260 entries\n" in text
    tiny(LrpeForCausalLM, "none").save_pretrained(tmp_path / "plain")
    text = (export(tmp_path / "plain", tmp_path / "again") / "README.md").read_text()
    assert "- Encoding: none\n- Tokenizer: none\n" in text


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
    with pytest.raises(LrpeError, match=r"must have a config.json, or be a run with one in best or last"):
        export(tmp_path / "nothing", tmp_path / "out")
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("all of it")
    with pytest.raises(LrpeError, match=r"new or empty folder; .*full' is not empty"):
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
    with pytest.raises(LrpeError, match="must import names"):
        imported("made.up", "import lrpe.encodings")
    with pytest.raises(LrpeError, match=r"lrpe.encodings is a package"):
        closure(["lrpe.encodings"])
