"""A replaced model is saved with the record of what was replaced, and loads by one call."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    CONFIG_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    LlamaForCausalLM,
    LlamaModel,
    Trainer,
    TrainingArguments,
)

import lrpe
from lrpe.adapt import from_pretrained, replace_attention, replace_rotary
from lrpe.models.saved import load_model
from tests.adapt.models import apart, logits, make, text

WAYS = {
    "rotary": lambda model: replace_rotary(model),
    "rotary type1": lambda model: replace_rotary(model, lrpe.configure("type1", 8, seed=3)),
    "linear": lambda model: replace_attention(model, "linear", "type2", decay=torch.tensor([0.5, 0.9])),
    "softmax": lambda model: replace_attention(model, "softmax", decay=(0.5, 0.9)),
    "hybrid": lambda model: replace_attention(model, layers=[1], normalizer="output-rms-head", feature_map="relu"),
}
PLAIN = {"llama": AutoModelForCausalLM, "mixtral": AutoModelForCausalLM, "bert": AutoModelForMaskedLM}
PLAIN |= dict.fromkeys(["gpt-neox", "gpt-2", "gemma 3", "smollm3"], AutoModelForCausalLM)


def moved(model):
    """Away from what the constructors give."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.01
    return model


def assert_same(loaded, model):
    ours, theirs = model.state_dict(), loaded.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(
        torch.equal(theirs[name], tensor) and theirs[name].dtype == tensor.dtype for name, tensor in ours.items()
    )
    assert apart(logits(loaded, text()), logits(model, text())) < 1e-5


@pytest.mark.parametrize("way", WAYS)
def test_one_call_loads_what_was_saved(way, tmp_path):
    model = moved(WAYS[way](make("llama")))
    model.save_pretrained(tmp_path, max_shard_size="30KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    loaded = from_pretrained(tmp_path)
    assert type(loaded) is type(model)
    assert_same(loaded, model)
    loaded.save_pretrained(tmp_path / "again")
    assert_same(from_pretrained(tmp_path / "again"), model)


@pytest.mark.parametrize("name", PLAIN)
def test_the_auto_classes_load_every_family_with_its_replacement(name, tmp_path):
    model = moved(replace_attention(make(name), "linear", "type3"))
    model.save_pretrained(tmp_path)
    assert_same(PLAIN[name].from_pretrained(tmp_path), model)
    trunk = AutoModel.from_pretrained(tmp_path).state_dict()  # BERT's has a pooler more
    assert all(torch.equal(trunk[name], value) for name, value in model.base_model.state_dict().items())


def test_where_lrpe_is_not_imported_the_auto_classes_refuse_the_folder(tmp_path, monkeypatch):
    replace_attention(make("llama")).save_pretrained(tmp_path)
    monkeypatch.delitem(CONFIG_MAPPING._extra_content, "lrpe-replaced")  # which the import has registered
    for auto in (AutoModel, AutoModelForCausalLM):
        with pytest.raises(ValueError, match="lrpe-replaced"):
            auto.from_pretrained(tmp_path)


def test_the_file_says_what_was_replaced(tmp_path):
    replace_attention(make("llama")).save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    assert values["model_type"] == "lrpe-replaced"
    assert values["architectures"] == ["LlamaForCausalLM"]
    assert values["replacement"]["attention"] == "linear"


@pytest.mark.parametrize("cls", [LlamaForCausalLM, LlamaModel])
def test_the_class_of_the_plain_model_refuses_the_folder_and_says_what_to_call(cls, tmp_path):
    replace_attention(make("llama")).save_pretrained(tmp_path)
    with pytest.raises(Exception, match=r"load it by lrpe\.adapt\.from_pretrained"):
        cls.from_pretrained(tmp_path)


def test_a_new_head_goes_on_a_replaced_trunk(tmp_path):
    model = moved(replace_attention(make("llama"), encoding="type2"))
    model.save_pretrained(tmp_path)
    loaded, info = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert info["missing_keys"] == {"score.weight"}
    assert type(loaded).__name__ == "LlamaForSequenceClassification"
    assert all(torch.equal(value, model.model.state_dict()[name]) for name, value in loaded.model.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_saving_is_exact_in_every_dtype(dtype, tmp_path):
    model = replace_rotary(make("llama").to(dtype), "type2").to(dtype)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.mul_(1 - 0.01 * torch.rand_like(tensor))
    model.save_pretrained(tmp_path)
    assert_same(from_pretrained(tmp_path), model)


def test_a_file_that_lacks_a_weight_is_refused(tmp_path):
    replace_attention(make("llama"), encoding="type2").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    lost = "model.layers.1.self_attn.attention.q_proj.weight"
    del weights[lost]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    for load in (
        from_pretrained,
        AutoModelForCausalLM.from_pretrained,
        AutoModelForSequenceClassification.from_pretrained,
    ):
        with pytest.raises(lrpe.LrpeError, match=f"lacks 1 of the weights .* promises: {lost}"):
            load(tmp_path)


def damage(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llama"}, "model_type must be 'lrpe-replaced'; .* has model_type='llama'"),
        ({"architectures": ["Popen"]}, "must name one model class of transformers; got architectures=.'Popen'."),
        ({"architectures": None}, "must name one model class of transformers"),
        ({"architectures": ["a", "b"]}, "must name one model class of transformers"),
        ({"replaced": {"config": {"model_type": "nothing"}}}, "replaced in config.json must hold"),
        ({"replaced": 3}, "replaced in config.json must hold"),
        ({"replacement": {"part": "mlp"}}, "part of a replacement must be 'rotary' or 'attention'"),
        ({"replacement": [1]}, "part of a replacement must be 'rotary' or 'attention'"),
        ({"replacement": {"part": "attention", "layer": [1]}}, "no field of a replacement named 'layer'"),
        ({"replacement": {"part": "attention", "layers": ["a"]}}, "list of numbers"),
        ({"replacement": {"part": "attention", "attention": ["linear"]}}, "attention must be a name"),
        ({"replacement": {"part": "attention", "encoding": {"head_dim": "a"}}}, "head_dim of an encoding"),
        ({"replacement": {"part": "rotary", "encoding": 3}}, "a name or an EncodingConfig"),
    ],
)
def test_a_damaged_record_is_refused_in_a_sentence(changes, message, tmp_path):
    replace_attention(make("llama")).save_pretrained(tmp_path)
    damage(tmp_path, **changes)
    with pytest.raises(lrpe.LrpeError, match=message):
        from_pretrained(tmp_path)


def test_a_config_json_that_is_none_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": ')
    with pytest.raises(lrpe.LrpeError, match=r"config\.json' is not JSON"):
        from_pretrained(tmp_path)


def test_our_own_loader_says_which_call_loads_it(tmp_path):
    replace_rotary(make("llama")).save_pretrained(tmp_path)
    with pytest.raises(lrpe.LrpeError, match=r"Load it by lrpe\.adapt\.from_pretrained"):
        load_model(tmp_path)


def test_a_choice_that_no_file_can_hold_is_refused_when_saving_and_nothing_is_written(tmp_path):
    model = replace_attention(make("llama"), feature_map=torch.exp)
    assert logits(model, text()).isfinite().all()
    with pytest.raises(
        lrpe.LrpeError, match=r"feature_map must be a name or numbers to be saved in config\.json; got feature_map="
    ):
        model.save_pretrained(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_weights_of_a_pickle_and_plain_configurations_are_refused(tmp_path):
    model = replace_rotary(make("llama"))
    model.save_pretrained(tmp_path)
    with pytest.raises(lrpe.LrpeError, match="use_safetensors must be True"):
        from_pretrained(tmp_path, use_safetensors=False)
    with pytest.raises(lrpe.LrpeError, match="got a plain LlamaConfig"):
        type(model)(make("llama").config)


@pytest.mark.slow
def test_transformers_trainer_saves_what_loads(tmp_path):
    model = replace_attention(make("llama"), encoding="type2")
    rows = [{"input_ids": row, "labels": row} for row in text().tolist()]
    options = {"max_steps": 2, "save_steps": 2, "use_cpu": True, "report_to": [], "disable_tqdm": True}
    Trainer(model, TrainingArguments(str(tmp_path), **options), train_dataset=rows).train()
    assert_same(from_pretrained(tmp_path / "checkpoint-2"), model.eval())


def test_the_configuration_of_another_model_is_left_alone():
    first = make("llama")
    second = type(first)(first.config)
    replace_attention(second)
    assert type(first.config).__name__ == "LlamaConfig"
    assert not hasattr(first.config, "lrpe_replacement")
    assert first.config._attn_implementation == "sdpa"
