"""An encoding in words and numbers, JSON in and out."""

import json
from dataclasses import fields, replace

import pytest
import torch
from torch.testing import assert_close

import lrpe
from lrpe import EncodingConfig, LinearAttention, LrpeError, configure
from lrpe.encodings.family import configure_for_heads
from tests.encodings.compositions import EVERY, features, outputs

LENGTHS = ("cosformer", "hope", "mamba3", "switched")  # whose angles are not geometric


def config_of(name):
    scaling = {"kind": "interpolation", "factor": 2.0} if name in LENGTHS else lrpe.encodings.YaRN(2.0, 64)
    return configure(name, 8, length=64, heads=3, scaling=scaling, seed=7)


@pytest.mark.parametrize("name", EVERY)
def test_a_configuration_survives_json_and_builds_the_same_encoding(name):
    config = config_of(name)
    again = EncodingConfig.from_json(config.to_json())
    assert again == config
    assert EncodingConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    x = features(3, 5, 8)
    assert_close(outputs(again.build().eval(), x), outputs(config.build().eval(), x), rtol=0, atol=0)


def test_every_field_goes_through_a_dictionary():
    values = {
        "head_dim": 8,
        "basis": "householder",
        "matrix": "orthogonal",
        "heads": 2,
        "axes": 2,
        "mixed_axes": True,
        "seed": 3,
        "reflections": 2,
        "learned_basis": True,
        "angles": "linear",
        "base": 100.0,
        "length": 9,
        "learned_angles": True,
        "rotated_share": 0.5,
        "key_phase": True,
        "rotated": 4,
        "alternating": 2,
        "scaling": {"kind": "interpolation", "factor": 2.0},
        "acts": "before",
        "decay": [0.5, 0.25],
        "steps": "head",
        "sines": 2,
        "realizations": 5,
    }
    config = EncodingConfig.from_dict(values)
    assert config.to_dict() == values
    assert set(values) == {field.name for field in fields(config)}
    defaults = EncodingConfig(1)
    assert not any(getattr(config, key) == getattr(defaults, key) for key in values if key != "matrix")


DRAWN = {  # what each draws at random
    "type2": lambda e: e.basis.v,
    "type3": lambda e: e.matrix.cycles,
    "learned*unitary": lambda e: e.basis.A,
    "spe": lambda e: e.noise,
}


@pytest.mark.parametrize("name", DRAWN)
def test_without_a_seed_every_layer_draws_its_own_and_manual_seed_repeats_them(name):
    torch.manual_seed(0)
    first, second = (DRAWN[name](LinearAttention(16, 2, name).encoding) for _ in range(2))
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    again = [DRAWN[name](LinearAttention(16, 2, name).encoding) for _ in range(2)]
    assert_close(again, [first, second], rtol=0, atol=0)


@pytest.mark.parametrize("name", DRAWN)
def test_with_a_seed_all_draw_the_same_whatever_was_drawn_before(name):
    config = configure_for_heads(name, 8, 2, seed=3)
    first, second = (DRAWN[name](config.build()) for _ in range(2))
    assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("form", [lrpe.theory.Additive, lrpe.theory.RPR, lrpe.theory.DeBERTa, lrpe.theory.T5Buckets])
def test_forms_without_a_seed_draw_their_own_too(form):
    first, second = (next(form(8).parameters()) for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(next(form(8, seed=1).parameters()), next(form(8, seed=1).parameters()))


@pytest.mark.parametrize("name", EVERY)
def test_building_leaves_the_global_generator_alone(name):
    torch.manual_seed(0)
    state = torch.get_rng_state()
    config_of(name).build()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"basis": "householder", "reflections": 3}, lambda e: e.basis.reflections == 3),
        ({"basis": "householder", "learned_basis": True}, lambda e: e.basis.v.requires_grad),
        ({"learned_angles": True}, lambda e: e.matrix.angles.alpha.requires_grad),
        ({"alternating": 3}, lambda e: (e.matrix.pairs, e.matrix.alternating) == (2, 3)),
        ({"rotated_share": 0.5}, lambda e: (e.matrix.angles.alpha > 0).tolist() == [True, True, False, False]),
        ({"key_phase": True}, lambda e: e.matrix.angles.delta.requires_grad),
        ({"axes": 2, "mixed_axes": True}, lambda e: (e.matrix.axes, e.matrix.pairs) == (2, 4)),
        ({"rotated": 4}, lambda e: e.matrix.pairs == 2),
        ({"heads": 3}, lambda e: e.matrix.angles.alpha.shape == (3, 4)),
        ({"base": 100.0}, lambda e: float(e.matrix.angles.alpha[1]) == pytest.approx(100 ** (-2 / 8))),
        ({"acts": "before"}, lambda e: e.acts == "before"),
        ({"decay": (0.5, 0.9)}, lambda e: e.decay.tolist() == pytest.approx([0.5, 0.9])),
        ({"matrix": "stochastic", "heads": 2, "sines": 3}, lambda e: e.freqs.shape == (2, 8, 3)),
        ({"matrix": "stochastic", "heads": 2, "realizations": 5}, lambda e: e.feature_dim == 5),
        ({"matrix": "permutation", "heads": 3}, lambda e: e.heads == 3),
    ],
)
def test_each_field_reaches_what_is_built(changes, part):
    assert part(EncodingConfig(8, **changes).build())


@pytest.mark.parametrize(
    ("call", "values"),
    [
        (lambda: EncodingConfig.from_dict({"head_dim": 8, "basus": "identity"}), ["'basus'", "'basis'"]),
        (lambda: EncodingConfig.from_dict({"basis": "identity"}), ["head_dim", "['basis']"]),
        (lambda: EncodingConfig.from_json("[1, 2]"), ["JSON object", "[1, 2]"]),
        (lambda: EncodingConfig.from_json("{not"), ["JSON object", "{not"]),
        (lambda: EncodingConfig(8, basis="housholder"), ["'housholder'", "'householder'"]),
        (lambda: EncodingConfig(8, matrix="orthogonol"), ["'orthogonol'", "'orthogonal'"]),
        (lambda: EncodingConfig(8, angles="geometrik"), ["'geometrik'", "'geometric'"]),
        (lambda: EncodingConfig(0), ["head_dim=0"]),
        (lambda: EncodingConfig(8, heads=0), ["heads=0"]),
        (lambda: EncodingConfig(8, angles="linear").build(), ["angles='linear'", "length="]),
        (lambda: EncodingConfig(8, matrix="stochastic").build(), ["heads="]),
        (lambda: EncodingConfig(8, decay=(1.5,)).build(), ["1.5", "0 < r ≤ 1"]),
        (lambda: EncodingConfig(8, heads=2, decay=(0.5, 0.5, 0.5)).build(), ["3", "2 heads"]),
        (lambda: EncodingConfig(8, acts="during").build(), ["'during'"]),
        (lambda: EncodingConfig(8, basis="householder", reflections=9).build(), ["reflections=9", "dim=8"]),
    ],
)
def test_what_cannot_be_built_is_refused_in_words(call, values):
    with pytest.raises(LrpeError) as error:
        call()
    assert all(value in str(error.value) for value in values)


def test_a_variant_changes_a_field():
    config = configure("type2", 64)
    assert replace(config, basis="odd-even") == configure("rope-half", 64, learned_angles=True)


WRONG = [{"head_dim": 8.0}, {"head_dim": "8"}, {"decay": 0.9}, {"scaling": "yarn"}, {"seed": 2**70}, {"heads": True}]


@pytest.mark.parametrize("field", WRONG)
def test_a_field_of_another_type_is_refused(field):
    with pytest.raises(LrpeError, match=next(iter(field))):
        EncodingConfig(**{"head_dim": 8} | field)
