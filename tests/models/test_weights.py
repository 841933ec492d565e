"""Loading under another class, head or configuration, and files that are refused."""

import json
from itertools import product
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
from tests.models.tiny import IDS, assert_same_tensors, logits, perturbed, tiny, tiny_config

HEAD = {"classifier.labels.weight", "classifier.labels.bias"}
OF_THE_MASKED_LM = {"dense.weight", "dense.bias", "dense_norm.weight", "lm_head.bias"}
CHANGES: dict[str, dict[str, Any]] = {
    "base": {"encoding": {"name": "rope", "base": 50.0}},
    "now fixed": {"encoding": "rope"},
    "seed": {"encoding": "type3", "seed": 7},
    "decay": {"decay": [0.5, 0.6, 0.7, 0.8]},
}


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
    of_angles = product(range(2), ("start", "log_alpha"))
    angles = {f"model.layers.{layer}.attention.encoding.matrix.angles.{name}" for layer, name in of_angles}
    assert info["missing_keys"] == HEAD | permutations
    assert info["unexpected_keys"] == OF_THE_MASKED_LM | angles
    fresh = LrpeForSequenceClassification(tiny_config("type3")).state_dict()
    for name in permutations:
        assert torch.equal(loaded.state_dict()[name], fresh[name])


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


def save_with_learned_alpha(model, folder: Path) -> None:
    """Save the model as versions did whose parameter was α itself."""
    model.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    for name in [name for name in weights if name.endswith("log_alpha")]:
        place = name.removesuffix("log_alpha")
        weights[f"{place}alpha"] = weights.pop(f"{place}start").mul(weights.pop(name).double().exp()).float()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def test_a_trunk_whose_alpha_was_learned_itself_goes_under_a_head_and_is_saved_with_log_alpha(tmp_path):
    model = perturbed(LrpeModel, causal=False, norm="rms")
    model.layers[1].attention.encoding.matrix.angles.start.neg_()
    save_with_learned_alpha(model, tmp_path)
    loaded, info = LrpeForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert info["missing_keys"] == OF_THE_MASKED_LM
    assert not info["unexpected_keys"]
    for layer, own in zip(loaded.model.layers, model.layers, strict=True):
        learned = own.attention.encoding.matrix.angles.alpha
        assert torch.equal(layer.attention.encoding.matrix.angles.alpha, learned.float().double())
    loaded.save_pretrained(tmp_path / "again")
    assert load_file(tmp_path / "again" / "model.safetensors").keys() == loaded.state_dict().keys() - {"lm_head.weight"}


@pytest.mark.parametrize("save", [save_with_learned_alpha, lambda model, folder: model.save_pretrained(folder)])
def test_learned_angles_stay_when_the_base_is_changed_on_loading(save, tmp_path):
    model = perturbed(encoding="type2")
    save(model, tmp_path)
    loaded = LrpeForCausalLM.from_pretrained(tmp_path, encoding={"name": "type2", "base": 50.0})
    torch.testing.assert_close(logits(loaded), logits(model))


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


def test_weights_of_another_model_are_refused(tmp_path):
    from safetensors.torch import save_file

    model = tiny(LrpeForCausalLM).float()
    model.save_pretrained(tmp_path)
    save_file({"transformer.h.0.attn.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(LrpeError, match="are of another model: none of the expected"):
        LrpeForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(LrpeError, match="use_safetensors must be True"):
        LrpeForCausalLM.from_pretrained(tmp_path, use_safetensors=False)
