"""One default for attention, and names wherever objects do."""

import inspect

import pytest
import torch
from torch.testing import assert_close

from lrpe import (
    Causal,
    LinearAttention,
    LrpeError,
    PlainDelta,
    SoftmaxAttention,
    configure,
    encoding,
    linear_attention,
    spread_decay,
)
from lrpe.attention.choices import DEFAULT_ENCODING, Member, complete
from tests.encodings.compositions import features


@pytest.mark.parametrize("function", [LinearAttention, linear_attention], ids=lambda each: each.__name__)
def test_attention_has_one_default_as_a_layer_and_as_a_function(function):
    parameters = inspect.signature(function).parameters
    defaults = {name: parameters[name].default for name in ("encoding", *Member._fields)}
    assert defaults.pop("encoding") == DEFAULT_ENCODING
    assert set(defaults.values()) == {"default"}
    assert complete(DEFAULT_ENCODING, **defaults) == Member()


def test_a_layer_by_default_is_type_2_with_the_spread_decay():
    layer = LinearAttention(8, 2)
    assert type(layer.encoding.matrix).__name__ == "Orthogonal"
    assert type(layer.encoding.basis).__name__ == "Householder"
    assert_close(layer.decay.r, torch.tensor(spread_decay(2)))
    assert SoftmaxAttention(8, 2).decay is None  # which forgets by itself


def test_names_give_what_objects_give():
    q, k, v = (features(1, 2, 6, 4, seed=i).requires_grad_() for i in range(3))
    named, state = linear_attention(q, k, v, "type2", "elu+1", "plain", summation="causal", decay="spread")
    config = configure("type2", 4, seed=0)
    phi = lambda x: torch.nn.functional.elu(x) + 1  # noqa: E731
    made, same = linear_attention(q, k, v, config.build(), phi, PlainDelta(), summation=Causal(), decay=spread_decay(2))
    assert_close(named, made, rtol=1e-12, atol=1e-12)
    assert_close(state, same, rtol=1e-12, atol=1e-12)
    assert_close(named, linear_attention(q, k, v, config)[0], rtol=0, atol=0)
    assert_close(named, linear_attention(q, k, v)[0], rtol=0, atol=0)
    assert not linear_attention(*(x.detach() for x in (q, k, v)))[0].requires_grad  # nothing in a name is learned
    layers = [LinearAttention(8, 2, "rope", decay=r) for r in ("spread", spread_decay(2))]
    assert_close(layers[0].decay.r, layers[1].decay.r, rtol=0, atol=0)
    assert_close(SoftmaxAttention(8, 2, decay="spread").decay.r, layers[0].decay.r, rtol=0, atol=0)


def test_a_name_fits_the_features_that_the_map_makes():
    q = features(1, 2, 5, 4)
    out, state = linear_attention(q, q, q, "type2", feature_map=lambda x: torch.cat([x.exp(), (-x).exp()], -1))
    assert out.shape == q.shape
    assert state is not None
    assert state.S.shape == (1, 2, 8, 4)
    out, _ = linear_attention(q, q, q, "per", decay=None)  # which has heads of its own and acts before φ
    assert out.shape == q.shape


Q = torch.ones(1, 2, 3, 4)
UNKNOWN = {
    "an encoding": ({"encoding": "tipe2"}, r"no encoding named 'tipe2'.*'type2'"),
    "a feature map": ({"feature_map": "elu"}, r"no feature map named 'elu'.*'elu\+1'"),
    "a normaliser": ({"normalizer": "plane"}, r"no normaliser named 'plane'.*'plain'"),
    "a summation": ({"summation": "casual"}, r"no summation named 'casual'.*'causal'"),
    "a decay": ({"decay": "spred"}, r"no decay named 'spred'.*'spread'"),
    "an encoding's type": ({"encoding": None}, r"encoding must be a name.*got NoneType"),
    "a summation's type": ({"summation": ["causal"]}, r"summation must be a name or a Summation; got list"),
    "a decay's type": (
        {"decay": {0.9}},
        r"decay must be 'spread', 'tnl', 'retnet', 'learned', 'gated', 'mamba3', one number per key head, or None; got",
    ),
    "a decay of words": ({"decay": ["fast", "slow"]}, r"decay must be 'spread'"),
    "a second decay": (
        {"encoding": encoding("per", 4, heads=2), "decay": "spread"},
        r"brings its own decay: pass decay=None",
    ),
}


@pytest.mark.parametrize(("choice", "words"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_no_choice_is_refused_alike_by_the_layer_and_the_function(choice, words):
    with pytest.raises(LrpeError, match=words):
        linear_attention(Q, Q, Q, **choice)
    with pytest.raises(LrpeError, match=words):
        LinearAttention(8, 2, **choice)
