"""Configurations: what comes back from a file, what layers get, and what is refused."""

import json

import pytest

from lrpe import EncodingConfig, LrpeError
from lrpe.models import LrpeConfig, configuration
from tests.models.tiny import ENCODINGS, tiny_config


def reload(config: LrpeConfig, folder) -> LrpeConfig:
    config.save_pretrained(folder)
    return LrpeConfig.from_pretrained(folder)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_comes_back_from_its_file(encoding, tmp_path):
    config = tiny_config(encoding, seed=7)
    again = reload(config, tmp_path)
    assert [again.layer_encoding(i) for i in range(2)] == [config.layer_encoding(i) for i in range(2)]


def test_layers_draw_different_values_from_one_seed():
    seeds = {tiny_config(seed=3).layer_encoding(layer).seed for layer in range(2)}
    assert len(seeds) == 2
    assert tiny_config(seed=3).layer_encoding(1) == tiny_config(seed=3).layer_encoding(1)
    assert tiny_config(seed=3).layer_encoding(1) != tiny_config(seed=4).layer_encoding(1)


def test_the_layers_of_permuteformer_are_alike_as_it_was_published():
    config = tiny_config("per")
    assert config.layer_encoding(0) == config.layer_encoding(1)
    assert config.layer_encoding(0).seed == 0xDEADBEEFDEADBEEF


def test_an_encoding_is_a_name_a_name_with_changes_or_all_fields():
    base = tiny_config({"name": "type2", "base": 500.0}).layer_encoding(0)
    assert (base.basis, base.base) == ("householder", 500.0)
    whole = EncodingConfig(8, "fourier", "unitary", seed=5)
    assert tiny_config(whole.to_dict()).layer_encoding(0).basis == "fourier"
    assert tiny_config(whole.to_dict()).layer_encoding(0).seed == 5
    unseeded = EncodingConfig(8, "fourier", "unitary")
    assert tiny_config(unseeded.to_dict(), seed=3).layer_encoding(0).seed == 3  # a model draws from seeds alone


def test_a_list_gives_each_layer_its_own_and_takes_its_seed_as_it_is():
    mixed = tiny_config(["rope", {"name": "type3", "seed": 9}])
    assert [mixed.layer_encoding(i).matrix for i in range(2)] == ["orthogonal", "permutation"]
    assert mixed.layer_encoding(1).seed == 9
    hybrid = tiny_config(attention=["linear", "softmax"])
    assert [hybrid.layer_attention(i) for i in range(2)] == ["linear", "softmax"]


def test_the_default_is_a_linear_model_with_selective_steps_a_gated_decay_a_gate_and_a_convolution():
    config = LrpeConfig()
    assert config.layer_attention(0) == "linear"
    assert (config.layer_encoding(0).matrix, config.layer_encoding(0).steps) == ("orthogonal", "head")
    assert (config.head_dim, config.absolute_positions) == (64, None)
    assert (config.layer_decay(0), config.output_gate, config.convolution) == ("gated", "silu", 4)


def test_the_default_follows_what_the_encoding_was_published_with_and_where_positions_lie():
    named = LrpeConfig(encoding="type2")
    assert (named.decay, named.feature_map, named.normalizer, named.convolution) == ("gated", "elu+1", "plain", 4)
    published = LrpeConfig(encoding="retnet")
    assert (published.decay, published.feature_map) == ("retnet", "identity")
    for layout in ("grid", "diagonal"):
        patches = LrpeConfig(image_size=32, position_layout=layout)
        assert (patches.encoding, patches.decay, patches.convolution, patches.output_gate) == (
            "type2", None, None, "silu",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("encoding", "decay"), [(None, "spread"), ("rope", "spread"), ("pope", None), ({"name": "lrpe-d"}, "tnl")]
)
def test_an_earlier_format_keeps_the_defaults_of_its_time(tmp_path, encoding, decay):
    tiny_config().save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    values = json.loads(file.read_text()) | {"format": 2}
    for name in ("encoding", "decay", "output_gate", "convolution", "feature_map", "normalizer"):
        del values[name]
    file.write_text(json.dumps(values if encoding is None else values | {"encoding": encoding}))
    read = LrpeConfig.from_pretrained(tmp_path)
    assert (read.encoding, read.decay) == (encoding or "type2", decay)
    assert (read.output_gate, read.convolution, read.format) == (None, None, configuration.FORMAT)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hiden_size": 32}, "no field of LrpeConfig named 'hiden_size'. Did you mean 'hidden_size'"),
        ({"encoding": "tpye2"}, "no encoding named 'tpye2'. Did you mean 'type2'"),
        ({"encoding": {"name": "type2", "bse": 3}}, "no field of EncodingConfig named 'bse'"),
        ({"encoding": ["type2"]}, "one entry per layer, 2 in all; got 1"),
        ({"encoding": {"head_dim": 6}}, "head_dim=8 and axes=1, as the model; got head_dim=6"),
        ({"attention": "liner"}, "no kind of attention named 'liner'"),
        ({"normalizer": "outptu"}, "no normalizer named 'outptu'"),
        ({"feature_map": "elu"}, "no feature_map named 'elu'"),
        ({"norm": "group"}, "no norm named 'group'"),
        ({"hidden_act": "gleu"}, "no activation named 'gleu'"),
        ({"decay": "spred"}, "no decay named 'spred'"),
        ({"decay": [0.5]}, r"one r in \(0, 1\] per key head, 4 in all"),
        ({"encoding": "per", "decay": "spread"}, "has its own decay; pass decay=None"),
        ({"hidden_size": 0}, "hidden_size must be a whole number of 1 or more"),
        ({"vocab_size": 4.5}, "vocab_size must be a whole number"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must divide num_attention_heads"),
        ({"hidden_dropout_prob": 1.0}, r"hidden_dropout_prob must be a rate in \[0, 1\)"),
        ({"position_layout": "grid"}, "position_layout must be 'sequence' for text"),
        ({"image_size": 30}, "multiple of patch_size; got image_size=30, patch_size=16"),
        ({"image_size": 32, "position_layout": "grid", "convolution": None}, "position_layout=.grid.. Pass decay=None"),
    ],
)
def test_a_broken_law_is_named(changes, message):
    with pytest.raises(LrpeError, match=message):
        tiny_config(**changes)


def test_a_field_changed_later_is_checked_when_a_model_is_built():
    from lrpe.models import LrpeModel

    config = tiny_config()
    config.norm = "group"
    with pytest.raises(LrpeError, match="no norm named 'group'"):
        LrpeModel(config)


def test_an_older_format_is_read_and_a_newer_one_refused(tmp_path, monkeypatch):
    tiny_config().save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    values = json.loads(file.read_text())
    older = {name: value for name, value in values.items() if name != "gated"} | {"swiglu": False}
    file.write_text(json.dumps(older))
    newer = configuration.FORMAT + 1
    monkeypatch.setattr(configuration, "FORMAT", newer)
    rename = {newer - 1: lambda fields: {("gated" if name == "swiglu" else name): v for name, v in fields.items()}}
    monkeypatch.setattr(configuration, "UPGRADES", rename)
    assert LrpeConfig.from_pretrained(tmp_path).gated is False
    file.write_text(json.dumps(values | {"format": newer + 1}))
    with pytest.raises(LrpeError, match=rf"at most {newer} for .* lrpe; got format={newer + 1}. Upgrade lrpe"):
        LrpeConfig.from_pretrained(tmp_path)


@pytest.mark.parametrize("encoding", ["mixed", {"name": "mixed", "base": 50.0}, ["type2", "mixed"]])
def test_mixed_of_the_first_format_is_still_the_half_rotation_on_a_grid_too(tmp_path, encoding):
    images = {"image_size": 4, "patch_size": 2, "position_layout": "grid", "decay": None}
    tiny_config("half-rotated", **images).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 1, "encoding": encoding}))
    read = LrpeConfig.from_pretrained(tmp_path).layer_encoding(1)
    base = encoding["base"] if isinstance(encoding, dict) else 10000.0
    seeded = tiny_config({"name": "half-rotated", "base": base}, **images).layer_encoding(1)
    assert read == seeded
    assert read.rotated == 4
    assert tiny_config("mixed", **images).layer_encoding(1).mixed_axes


def test_a_configuration_of_another_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 32}))
    with pytest.raises(LrpeError, match="must be 'lrpe'; got model_type='llama'"):
        LrpeConfig.from_pretrained(tmp_path)


def test_a_configuration_that_is_no_object_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("[1, 2]")
    with pytest.raises(LrpeError, match=r"must hold a JSON object; got \[1, 2\]"):
        LrpeConfig.from_pretrained(tmp_path)


def test_checking_a_configuration_warns_of_nothing(monkeypatch):
    said = []
    monkeypatch.setattr("transformers.configuration_utils.logger.warning_once", said.append)
    LrpeConfig()
    assert not said


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 30}, "num_attention_heads must divide hidden_size"),
        ({"num_key_value_heads": 0}, "num_key_value_heads must be a whole number"),
        ({"image_size": -16}, "image_size must be a whole number"),
        ({"classifier_hidden_size": 0}, "classifier_hidden_size must be a whole number"),
        ({"norm_eps": float("nan")}, "norm_eps must be a number above 0"),
        ({"initializer_range": -1.0}, "initializer_range must be a number above 0"),
        ({"gated": "no"}, "gated must be one of"),
        ({"causal": "yes"}, "causal must be one of"),
        ({"pad_token_id": 40}, "pad_token_id must be below vocab_size=40"),
        ({"encoding": 3}, "encoding must be a name, a dictionary, or a list"),
        ({"seed": "a"}, "seed must be a whole number"),
        ({"hidden_dropout_prob": "a"}, "hidden_dropout_prob must be a rate"),
    ],
)
def test_a_number_that_is_none_is_named(changes, message):
    with pytest.raises(LrpeError, match=message):
        tiny_config(**changes)


def test_a_tuple_is_as_good_as_a_list():
    assert tiny_config(attention=("linear", "softmax")).layer_attention(1) == "softmax"
