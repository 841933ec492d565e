"""A loaded model is the model that was saved, in every dtype, and nothing is unpickled."""

import copy
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from lrpe.models import LrpeForCausalLM, LrpeModel
from tests.encodings.compositions import EVERY
from tests.models.tiny import assert_same_tensors, logits, perturbed, tiny_config

LEARNED = {"learned_angles": True, "learned_basis": True}
VARIANTS: dict[str, dict[str, Any]] = {
    "learned": {"encoding": {"name": "type2", "reflections": 3, **LEARNED}},
    "a head": {"encoding": {"name": "type1", "heads": 4, **LEARNED}},
    "yarn": {"encoding": {"name": "rope", "scaling": {"kind": "yarn", "factor": 4.0, "length": 16}}},
    "ntk": {"encoding": {"name": "rope-half", "scaling": {"kind": "ntk", "factor": 2.0}}},
    "favor+": {"feature_map": "favor+"},
    "decay": {"encoding": "type3", "decay": [0.5, 0.75, 0.9, 1.0]},
    "softmax": {"attention": ["linear", "softmax"], "normalizer": "plain"},
    "layers": {"encoding": ["type1", {"name": "rope", "base": 100.0}]},
    "learned positions": {"absolute_positions": "learned", "norm": "layer", "norm_position": "post"},
    "batch norm": {"norm": "batch"},
}
CHOICES = {name: {"encoding": name} for name in EVERY} | VARIANTS


def is_definition(name: str) -> bool:
    return any(part in name for part in (".encoding.", ".phi.", ".decay."))


@pytest.mark.parametrize("choice", CHOICES)
def test_a_loaded_model_is_the_model_that_was_saved(choice, tmp_path):
    model = perturbed(**CHOICES[choice])
    model.save_pretrained(tmp_path)
    loaded, info = LrpeForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert_same_tensors(model, loaded)
    own = copy.deepcopy(loaded)  # in memory of its own: kernels round by how what a file maps is aligned
    torch.testing.assert_close(logits(own), logits(model), rtol=0, atol=0)
    assert loaded.config.to_json_string() == model.config.to_json_string()
    assert {name for name, _ in loaded.named_parameters()} == {name for name, _ in model.named_parameters()}


def test_the_file_and_not_the_seed_defines_a_loaded_encoding(tmp_path):
    model = perturbed(encoding="type2")
    model.save_pretrained(tmp_path)
    loaded, fresh = LrpeForCausalLM.from_pretrained(tmp_path).state_dict(), LrpeForCausalLM(model.config).state_dict()
    moved = [name for name in loaded if is_definition(name) and not torch.equal(loaded[name], fresh[name])]
    kinds = {name.split("attention.")[1] for name in moved}
    assert kinds == {
        "encoding.basis.v",
        "encoding.matrix.angles.log_alpha",
        "encoding.matrix.angles.start",
        "decay.r",
    }


def test_only_safetensors_are_written(tmp_path):
    perturbed().save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
    }


def test_a_pickle_beside_the_safetensors_is_not_read(tmp_path):
    model = perturbed()
    model.save_pretrained(tmp_path)
    torch.save({name: torch.zeros_like(t) for name, t in model.state_dict().items()}, tmp_path / "pytorch_model.bin")
    assert torch.equal(logits(LrpeForCausalLM.from_pretrained(tmp_path)), logits(model))


@pytest.mark.parametrize("cls", [LrpeForCausalLM, AutoModelForCausalLM])
def test_a_pickle_alone_is_not_read_either(cls, tmp_path):
    model = perturbed()
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"model\.safetensors"):
        cls.from_pretrained(tmp_path)


@pytest.mark.parametrize("encoding", ["type2", "type3", "spe", "learned*unitary"])
def test_a_model_in_shards_is_the_model_that_was_saved(encoding, tmp_path):
    model = perturbed(encoding=encoding)
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 3
    loaded = LrpeForCausalLM.from_pretrained(tmp_path)
    assert_same_tensors(model, loaded)
    assert torch.equal(logits(loaded), logits(model))


@pytest.mark.parametrize("place", ["cpu", "auto", {"": "cpu"}], ids=str)
def test_a_device_map_loads_the_same_model(place, tmp_path):
    model = perturbed(encoding="type1")
    model.save_pretrained(tmp_path)
    loaded = LrpeForCausalLM.from_pretrained(tmp_path, device_map=place)
    assert_same_tensors(model, loaded)
    assert torch.equal(logits(loaded), logits(model))


@pytest.mark.parametrize("choice", ["type1", "type3", "per", "spe", "fourier*unitary", "learned", "yarn", "favor+"])
def test_bfloat16_rounds_the_weights_and_not_what_defines_the_encoding(choice, tmp_path):
    model = perturbed(**CHOICES[choice])
    model.save_pretrained(tmp_path)
    loaded = LrpeForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert loaded.lm_head.weight.dtype == torch.bfloat16
    exact = {name: tensor for name, tensor in model.state_dict().items() if is_definition(name)}
    assert exact
    for name, tensor in exact.items():
        assert loaded.state_dict()[name].dtype == tensor.dtype, name
        assert torch.equal(loaded.state_dict()[name], tensor), name
    near = (logits(loaded).float() - logits(model)).norm() / logits(model).norm()
    assert near < 0.03


def test_a_model_saved_in_bfloat16_comes_back_as_it_was(tmp_path):
    model = perturbed(encoding="fourier*unitary").to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    loaded = LrpeForCausalLM.from_pretrained(tmp_path)
    assert_same_tensors(model, loaded)
    assert torch.equal(logits(loaded), logits(model))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_saving_is_exact_in_every_dtype(dtype, tmp_path):
    model = LrpeForCausalLM(tiny_config(encoding={"name": "type2", **LEARNED}, feature_map="favor+")).to(dtype).eval()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.mul_(1 - 0.01 * torch.rand_like(tensor))  # so that float64 has digits beyond float32
    model.save_pretrained(tmp_path)
    loaded = LrpeForCausalLM.from_pretrained(tmp_path)
    assert_same_tensors(model, loaded)
    torch.testing.assert_close(logits(copy.deepcopy(loaded)), logits(model), rtol=0, atol=0)


def test_float64_angles_of_a_bfloat16_model_keep_their_digits_under_another_head(tmp_path):
    model = LrpeForCausalLM(tiny_config()).double()
    with torch.no_grad():
        model.model.layers[0].attention.encoding.matrix.angles.log_alpha.add_(1 / 3)
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    loaded = LrpeModel.from_pretrained(tmp_path)
    assert loaded.layers[0].feed_forward.up_proj.weight.dtype == torch.bfloat16
    assert_same_tensors(model.model.layers[0].attention.encoding, loaded.layers[0].attention.encoding)
