"""A checkpoint is whole or absent, and a damaged one is known."""

import shutil

import pytest
import torch
from safetensors.torch import load_file

from lrpe import LrpeError
from lrpe.models import LrpeForCausalLM
from lrpe.training import checkpoint
from lrpe.training.checkpoint import load_checkpoint, read_progress, save_checkpoint
from lrpe.training.history import History
from lrpe.training.optimization import Optimization
from tests.models.tiny import draw_ids, tiny
from tests.training.small_run import assert_same_run, run


def learned(seed: int):
    """A model with tied embeddings, and an optimiser that has made a step."""
    torch.manual_seed(seed)
    model = tiny(LrpeForCausalLM)
    optimizer = Optimization().build(model)
    model(draw_ids(1, 9), labels=draw_ids(1, 9)).loss.backward()
    optimizer.step()
    return model, optimizer


def test_a_model_and_its_optimizer_come_back(tmp_path):
    model, optimizer = learned(seed=0)
    save_checkpoint(tmp_path / "step-00000001", model, model, optimizer, {"update": 1})
    other, other_optimizer = learned(seed=1)
    load_checkpoint(tmp_path / "step-00000001", other, other_optimizer)
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        before, after = optimizer.state[one], other_optimizer.state[two]
        assert all(torch.equal(before[key], after[key]) for key in before)


def test_tied_weights_are_saved_once_and_stay_tied(tmp_path):
    model, optimizer = learned(seed=0)
    save_checkpoint(tmp_path / "step-00000001", model, model, optimizer, {"update": 1})
    assert "lm_head.weight" not in load_file(tmp_path / "step-00000001" / "model.safetensors")
    found = LrpeForCausalLM.from_pretrained(tmp_path / "step-00000001")
    assert found.lm_head.weight is found.model.embed_tokens.weight
    assert torch.equal(found.lm_head.weight, model.lm_head.weight)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return folder


@pytest.mark.parametrize("name", ["model.safetensors", "state/__0_0.distcp", "config.json", "checkpoint.json"])
def test_damage_to_any_file_is_named_and_the_checkpoint_before_it_used(tmp_path, whole, capsys, name):
    folder = shutil.copytree(whole, tmp_path / "run", symlinks=True)
    file = folder / "checkpoints" / "step-00000012" / name
    file.write_bytes(file.read_bytes()[:-8])
    run(folder)
    shown = capsys.readouterr().err
    assert "step-00000012 is damaged" in shown
    assert "The one before it is used" in shown
    assert_same_run(folder, whole)
    assert "is damaged" in (folder / "train.log").read_text()


def test_a_flipped_byte_is_damage(tmp_path):
    model, optimizer = learned(seed=0)
    folder = tmp_path / "step-00000001"
    save_checkpoint(folder, model, model, optimizer, {"update": 1})
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(LrpeError, match=r"is damaged: model\.safetensors is not what was written"):
        read_progress(folder)


def test_what_a_kill_left_is_swept_up(tmp_path):
    history = History(tmp_path)
    (history.folder / ".step-00000003.tmp" / "state").mkdir(parents=True)
    history.place(2).mkdir()  # being removed: its checkpoint.json is gone already
    assert history.newest() is None
    assert not list(history.folder.iterdir())


def test_a_checkpoint_has_its_name_only_when_it_is_on_the_disk(tmp_path, monkeypatch):
    model, optimizer = learned(seed=0)
    seen = []
    monkeypatch.setattr(checkpoint, "sync", lambda path: seen.append((path.name, (tmp_path / "step-1").exists())))
    save_checkpoint(tmp_path / "step-1", model, model, optimizer, {"update": 1})
    assert {"checkpoint.json", "model.safetensors", ".metadata"} <= {name for name, named in seen if not named}
    assert seen[-1] == (tmp_path.name, True)
