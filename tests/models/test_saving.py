"""Saving and loading: a loaded model is the model that was saved, and a file that is not one is refused."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from lrpe.errors import LrpeError
from lrpe.models import (
    LrpeConfig,
    LrpeForCausalLM,
    LrpeForMaskedLM,
    LrpeForSequenceClassification,
    LrpeForTokenClassification,
    LrpeModel,
)
from tests.encodings.compositions import EVERY
from tests.models.tiny import draw_ids, tiny_config

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
IDS = draw_ids(2, 11)


def perturbed(cls: type = LrpeForCausalLM, **changes: Any):
    """A model in float32 whose tensors, learned or fixed, are others than its configuration would make."""
    torch.manual_seed(1)
    model = cls(tiny_config(**{"initializer_range": 0.1} | changes)).eval()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.mul_(1 + 0.01 * torch.rand_like(tensor) * (tensor < 0.9))  # and a decay stays below 1
    return model


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model(IDS).logits


def assert_same_tensors(model, other) -> None:
    ours, theirs = model.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert theirs[name].dtype == tensor.dtype, name
        assert torch.equal(theirs[name], tensor), name


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
        "encoding.matrix.angles.alpha",
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
        model.model.layers[0].attention.encoding.matrix.angles.alpha.mul_(1 / 3)
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    loaded = LrpeModel.from_pretrained(tmp_path)
    assert loaded.layers[0].feed_forward.up_proj.weight.dtype == torch.bfloat16
    assert_same_tensors(model.model.layers[0].attention.encoding, loaded.layers[0].attention.encoding)


@pytest.mark.parametrize(
    ("auto", "cls"),
    [
        (AutoModel, LrpeModel),
        (AutoModelForCausalLM, LrpeForCausalLM),
        (AutoModelForMaskedLM, LrpeForMaskedLM),
        (AutoModelForSequenceClassification, LrpeForSequenceClassification),
        (AutoModelForTokenClassification, LrpeForTokenClassification),
    ],
)
def test_the_auto_classes_find_the_model(auto, cls, tmp_path):
    model = perturbed(cls)
    model.save_pretrained(tmp_path)
    assert type(AutoConfig.from_pretrained(tmp_path)) is LrpeConfig
    loaded = auto.from_pretrained(tmp_path)
    assert type(loaded) is cls
    assert_same_tensors(model, loaded)


HEAD = {"classifier.labels.weight", "classifier.labels.bias"}
OF_THE_MASKED_LM = {"dense.weight", "dense.bias", "dense_norm.weight", "lm_head.bias"}


def test_a_classifier_takes_the_trunk_of_a_masked_language_model_and_only_its_head_is_new(tmp_path):
    model = perturbed(LrpeForMaskedLM, norm="rms")
    model.save_pretrained(tmp_path)
    loaded, info = LrpeForSequenceClassification.from_pretrained(tmp_path, num_labels=3, output_loading_info=True)
    assert info["missing_keys"] == HEAD
    assert info["unexpected_keys"] == OF_THE_MASKED_LM
    assert not info["mismatched_keys"]
    assert_same_tensors(model.model, loaded.model)
    assert loaded.classifier.labels.weight.shape[0] == 3
    assert 0 < loaded.classifier.labels.weight.std() < 1


@pytest.mark.parametrize("cls", [LrpeForMaskedLM, LrpeForSequenceClassification])
def test_a_trunk_that_was_saved_alone_goes_under_any_head(cls, tmp_path):
    model = perturbed(LrpeModel, causal=False, norm="rms")
    model.save_pretrained(tmp_path)
    loaded, info = cls.from_pretrained(tmp_path, output_loading_info=True)
    assert_same_tensors(model, loaded.model)
    assert info["missing_keys"] == (HEAD if cls is LrpeForSequenceClassification else OF_THE_MASKED_LM)
    assert not info["unexpected_keys"]


def test_an_encoding_that_is_changed_on_loading_is_drawn_from_its_seed(tmp_path):
    model = perturbed(LrpeForMaskedLM, encoding="type2", norm="rms")
    model.save_pretrained(tmp_path)
    loaded, info = LrpeForSequenceClassification.from_pretrained(tmp_path, encoding="type3", output_loading_info=True)
    permutations = {f"model.layers.{layer}.attention.encoding.matrix.cycles" for layer in range(2)}
    angles = {f"model.layers.{layer}.attention.encoding.matrix.angles.alpha" for layer in range(2)}
    assert info["missing_keys"] == HEAD | permutations
    assert info["unexpected_keys"] == OF_THE_MASKED_LM | angles
    fresh = LrpeForSequenceClassification(tiny_config("type3")).state_dict()
    for name in permutations:
        assert torch.equal(loaded.state_dict()[name], fresh[name])


CHANGES: dict[str, dict[str, Any]] = {
    "base": {"encoding": {"name": "rope", "base": 50.0}},
    "now fixed": {"encoding": "rope"},
    "seed": {"encoding": "type3", "seed": 7},
    "decay": {"decay": [0.5, 0.6, 0.7, 0.8]},
}


@pytest.mark.parametrize("cls", [LrpeForCausalLM, AutoModelForCausalLM])
@pytest.mark.parametrize(
    ("saved", "change", "parts"),
    [
        ("rope", "base", ["encoding.matrix.angles.alpha"]),
        ("type2", "now fixed", ["encoding.matrix.angles.alpha"]),
        ("type3", "seed", ["encoding.basis.v", "encoding.matrix.cycles"]),
        ("type2", "decay", ["decay.r"]),
    ],
)
def test_what_is_fixed_follows_a_configuration_that_is_changed_on_loading(cls, saved, change, parts, tmp_path):
    perturbed(encoding=saved).save_pretrained(tmp_path)
    loaded = cls.from_pretrained(tmp_path, **CHANGES[change])
    fresh = LrpeForCausalLM(tiny_config(**{"encoding": saved} | CHANGES[change])).state_dict()
    for name in (f"model.layers.{layer}.attention.{part}" for layer in range(2) for part in parts):
        assert torch.equal(loaded.state_dict()[name], fresh[name]), name


def test_what_was_learned_stays_when_the_context_is_lengthened_on_loading(tmp_path):
    model = perturbed(encoding="type2", decay=None)
    model.save_pretrained(tmp_path)
    longer = {"name": "type2", "scaling": {"kind": "interpolation", "factor": 4.0}}
    loaded = LrpeForCausalLM.from_pretrained(tmp_path, encoding=longer, max_position_embeddings=256)
    assert_same_tensors(model, loaded)
    far = loaded(IDS, position_ids=4 * torch.arange(IDS.shape[1])[None]).logits  # as far apart as the model knows them
    torch.testing.assert_close(far, model(IDS).logits)
    assert not torch.allclose(logits(loaded), logits(model), atol=1e-3)


@pytest.mark.parametrize("cls", [LrpeForCausalLM, LrpeForMaskedLM])
def test_tied_weights_stay_tied_after_loading_and_after_resizing(cls, tmp_path):
    perturbed(cls).save_pretrained(tmp_path)
    loaded = cls.from_pretrained(tmp_path)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    before = loaded.lm_head.weight.detach().clone()
    loaded.resize_token_embeddings(len(before) + 7, mean_resizing=False)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert torch.equal(loaded.lm_head.weight[: len(before)], before)
    assert logits(loaded).shape[-1] == loaded.config.vocab_size == len(before) + 7
    loaded.save_pretrained(tmp_path / "again")
    again = cls.from_pretrained(tmp_path / "again")
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert torch.equal(logits(again), logits(loaded))


def test_untied_weights_stay_apart(tmp_path):
    model = perturbed(tie_word_embeddings=False)
    model.save_pretrained(tmp_path)
    loaded = LrpeForCausalLM.from_pretrained(tmp_path)
    assert loaded.lm_head.weight is not loaded.model.embed_tokens.weight
    assert_same_tensors(model, loaded)


@pytest.fixture
def saved(tmp_path) -> Path:
    perturbed().save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kept", [100, -1], ids=["of the header", "of the weights"])
@pytest.mark.parametrize("cls", [LrpeForCausalLM, AutoModelForCausalLM])
def test_a_file_that_is_cut_short_is_refused_by_name(cls, kept, saved):
    file = saved / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(LrpeError, match=r"model\.safetensors"):
        cls.from_pretrained(saved)


@pytest.mark.parametrize(
    "lost", ["model.layers.1.attention.q_proj.weight", "model.embed_tokens.weight", "model.norm.bias"]
)
@pytest.mark.parametrize("cls", [LrpeForCausalLM, AutoModelForCausalLM, LrpeForSequenceClassification])
def test_a_file_that_lacks_a_weight_of_the_trunk_is_refused(cls, lost, saved):
    weights = load_file(saved / "model.safetensors")
    del weights[lost]
    save_file(weights, saved / "model.safetensors", {"format": "pt"})
    with pytest.raises(LrpeError, match=rf"lacks \d of the weights that its config.json promises: .*{lost}"):
        cls.from_pretrained(saved)


def test_a_head_may_be_missing_from_a_file_of_another_head_alone(tmp_path):
    model = perturbed(LrpeForSequenceClassification)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    save_file({k: v for k, v in weights.items() if k not in HEAD}, tmp_path / "model.safetensors", {"format": "pt"})
    assert_same_tensors(LrpeForTokenClassification.from_pretrained(tmp_path).model, model.model)
    with pytest.raises(LrpeError, match="lacks 2 of the weights"):
        LrpeForSequenceClassification.from_pretrained(tmp_path)


def test_of_the_shards_the_one_that_is_cut_short_is_named(saved):
    (saved / "model.safetensors").unlink()
    perturbed().save_pretrained(saved, max_shard_size="10KB")
    file = sorted(saved.glob("*.safetensors"))[2]
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(LrpeError, match=file.name):
        LrpeForCausalLM.from_pretrained(saved)


@pytest.mark.parametrize(("cls", "error"), [(LrpeForCausalLM, LrpeError), (AutoModelForCausalLM, OSError)])
def test_a_configuration_that_is_no_json_is_refused_by_name(cls, error, saved):
    (saved / "config.json").write_text('{"model_type": "lrpe",')
    with pytest.raises(error, match=r"config\.json' is not (a valid )?JSON"):
        cls.from_pretrained(saved)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("model_type", "bert", "must be 'lrpe'; got model_type='bert'"),
        ("format", 99, "format=99"),
        ("format", 0, "format=0"),
        ("encodng", "type1", "named 'encodng'. Did you mean 'encoding'"),
        ("encoding", "type9", "type9"),
        ("hidden_size", -1, "hidden_size=-1"),
    ],
)
def test_a_configuration_that_is_not_ours_is_refused_and_the_field_named(field, value, message, saved):
    file = saved / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    with pytest.raises(LrpeError, match=message):
        LrpeForCausalLM.from_pretrained(saved)
