"""A checkpoint is whole or absent, and a damaged one is known."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from lrpe import LrpeError, atomic
from lrpe.lab.training import checkpoint
from lrpe.lab.training.checkpoint import CheckpointHistory, Progress, load_checkpoint, read_progress, save_checkpoint
from lrpe.lab.training.settings import Optimization
from lrpe.models import LrpeForCausalLM
from tests.lab.training.small_run import assert_same_run, run
from tests.models.tiny import draw_ids, tiny

SHARE = "00001-of-00001.safetensors"


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
    save_checkpoint(tmp_path / "step-00000001", model, model, optimizer, Progress(1))
    other, other_optimizer = learned(seed=1)
    load_checkpoint(tmp_path / "step-00000001", other, other_optimizer)
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        before, after = optimizer.state[one], other_optimizer.state[two]
        assert all(torch.equal(before[key], after[key]) for key in before)


def test_tied_weights_are_saved_once_and_stay_tied(tmp_path):
    model, optimizer = learned(seed=0)
    save_checkpoint(tmp_path / "step-00000001", model, model, optimizer, Progress(1))
    assert "lm_head.weight" not in load_file(tmp_path / "step-00000001" / "model.safetensors")
    found = LrpeForCausalLM.from_pretrained(tmp_path / "step-00000001")
    assert found.lm_head.weight is found.model.embed_tokens.weight
    assert torch.equal(found.lm_head.weight, model.lm_head.weight)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return folder


@pytest.mark.parametrize(
    "name", ["model.safetensors", "state/00001-of-00001.safetensors", "config.json", "checkpoint.json"]
)
def test_damage_to_any_file_is_named_and_the_checkpoint_before_it_used(tmp_path, ended, capsys, name):
    folder = shutil.copytree(ended, tmp_path / "run", symlinks=True)
    file = folder / "checkpoints" / "step-00000012" / name
    file.write_bytes(file.read_bytes()[:-8])
    run(folder)
    shown = capsys.readouterr().err
    assert "step-00000012 is damaged" in shown
    assert "The previous one is used" in shown
    assert_same_run(folder, ended)
    assert "is damaged" in (folder / "train.log").read_text()


def test_a_flipped_byte_is_damage(tmp_path):
    model, optimizer = learned(seed=0)
    folder = tmp_path / "step-00000001"
    save_checkpoint(folder, model, model, optimizer, Progress(1))
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(LrpeError, match=r"is damaged: model\.safetensors is not what was written"):
        read_progress(folder)


def test_what_a_kill_left_is_swept_up(tmp_path):
    history = CheckpointHistory(tmp_path)
    (history.folder / ".step-00000003.tmp" / "state").mkdir(parents=True)
    history.path_of(2).mkdir()  # being removed: its checkpoint.json is gone already
    assert history.find_newest() is None
    assert not list(history.folder.iterdir())


def test_a_checkpoint_has_its_name_only_when_it_is_on_the_disk(tmp_path, monkeypatch):
    model, optimizer = learned(seed=0)
    seen = []
    for module in (atomic, checkpoint):
        monkeypatch.setattr(module, "sync", lambda path: seen.append((path.name, (tmp_path / "step-1").exists())))
    save_checkpoint(tmp_path / "step-1", model, model, optimizer, Progress(1))
    assert {"checkpoint.json", "model.safetensors", SHARE} <= {name for name, named in seen if not named}
    assert seen[-1] == (tmp_path.name, True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: {name: found[name] for name in sorted(found)[::2]}, "is missing"),
        (lambda found: found | {"model.foreign": torch.zeros(2)}, "model.foreign is not of this model"),
        (lambda found: {name: value[..., :1].clone() for name, value in found.items()}, "where the model has"),
    ],
)
def test_weights_that_are_not_the_models_are_refused(tmp_path, change, said):
    model, optimizer = learned(seed=0)
    save_checkpoint(tmp_path / "step-1", model, model, optimizer, Progress(1))
    file = tmp_path / "step-1" / "model.safetensors"
    save_file(change(load_file(file)), file)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(LrpeError, match=rf"not those of this model: .*{said}"):
        load_checkpoint(tmp_path / "step-1", model, optimizer)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("drop", ["exp_avg", "step"])
def test_a_state_that_lacks_something_is_refused(tmp_path, drop):
    model, optimizer = learned(seed=0)
    save_checkpoint(tmp_path / "step-1", model, model, optimizer, Progress(1))
    file = tmp_path / "step-1" / "state" / SHARE
    save_file({name: value for name, value in load_file(file).items() if not name.endswith(drop)}, file)
    with pytest.raises(LrpeError, match=rf"has no .*{drop}: it is of another model"):
        load_checkpoint(tmp_path / "step-1", model, optimizer)


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"update": "3"}', '{"update": 1, "sha256": {"../x": ""}}'])
def test_a_checkpoint_json_of_another_shape_is_damage(tmp_path, text):
    (tmp_path / "checkpoint.json").write_text(text)
    with pytest.raises(LrpeError, match="is damaged"):
        read_progress(tmp_path)


def test_a_checkpoint_that_says_it_is_another_is_put_aside(tmp_path, ended):
    folder = shutil.copytree(ended, tmp_path / "run", symlinks=True)
    (folder / "checkpoints" / "step-00000012").rename(folder / "checkpoints" / "step-00000099")
    history = CheckpointHistory(folder)
    found = history.find_newest()
    assert found is not None
    assert found.update == 9
    assert "its checkpoint.json is of update 12" in history.damaged[0]
