"""Names, and what others call them: transformers', rotary-embedding-torch's, PermuteFormer's, cosFormer's."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from torch.testing import assert_close
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from lrpe import LrpeError, configure, encoding
from lrpe.encodings.family import BASELINES, FAMILY, configure_for_heads
from tests.encodings.compositions import EVERY, far, features, make, seeds

few = settings(max_examples=10)


@few
@given(pairs=st.integers(1, 32), n=st.integers(1, 50), base=st.sampled_from([10000.0, 500000.0]), seed=seeds)
def test_rope_half_scores_as_llama_does(pairs, n, base, seed):
    dim = 2 * pairs
    config = LlamaConfig(
        hidden_size=dim, num_attention_heads=1, rope_parameters={"rope_type": "default", "rope_theta": base}
    )
    q, k = (features(2, 3, n, dim, seed=seed + i, dtype=torch.float32) for i in (0, 1))
    cos, sin = LlamaRotaryEmbedding(config)(q, torch.arange(n)[None])
    q_llama, k_llama = apply_rotary_pos_emb(q, k, cos, sin)
    encode = encoding("rope-half", dim, base=base)
    assert_close(encode(q) @ encode(k).mT, q_llama @ k_llama.mT, rtol=0, atol=1e-4 * dim)


def test_rope_half_is_llamas_layout_interleaved():
    config = LlamaConfig(hidden_size=8, num_attention_heads=1)
    q = features(1, 1, 9, 8, dtype=torch.float32)
    cos, sin = LlamaRotaryEmbedding(config)(q, torch.arange(9)[None])
    llama, _ = apply_rotary_pos_emb(q, q, cos, sin)
    assert_close(encoding("rope-half", 8)(q), llama.unflatten(-1, (2, 4)).mT.flatten(-2), rtol=0, atol=1e-5)


@few
@given(pairs=st.integers(2, 32), n=st.integers(1, 50), offset=st.integers(0, 50), seed=seeds)
def test_rope_is_rotary_embedding_torchs(pairs, n, offset, seed):
    dim = 2 * pairs
    x = features(2, 3, n, dim, seed=seed, dtype=torch.float32)
    theirs = RotaryEmbedding(dim, cache_if_possible=False)
    encode = encoding("rope", dim)
    positions = offset + torch.arange(n)
    assert_close(encode(x, positions), theirs.rotate_queries_or_keys(x, offset=offset), rtol=0, atol=1e-4)
    assert_close(encode(x, positions), apply_rotary_emb(theirs(positions.float()), x), rtol=0, atol=1e-4)


@few
@given(dim=st.integers(1, 9), m=st.integers(1, 500), s=st.integers(-500, 500), t=st.integers(-500, 500), seed=seeds)
def test_cosformer_scores_by_the_cosine_of_a_quarter_turn_over_the_length(dim, m, s, t, seed):
    q, k = features(1, dim, seed=seed), features(1, dim, seed=seed + 1)
    encode = encoding("cosformer", dim, length=m)
    score = encode(q, torch.tensor([s])) @ encode(k, torch.tensor([t])).mT
    assert_close(score, q @ k.mT * math.cos(math.pi * (t - s) / (2 * m)), rtol=0, atol=1e-3)


@few
@given(dim=st.integers(2, 9), s=far, seed=seeds)
def test_type_1_on_x_is_type_2_on_x_and_0(dim, s, seed):
    x = features(1, dim, seed=seed)
    type1, type2 = encoding("identity*unitary", dim), encoding("rope", 2 * dim)
    with torch.no_grad():
        type2.matrix.angles.alpha.copy_(type1.matrix.angles.alpha)
    doubled = torch.stack([x, torch.zeros_like(x)], -1).flatten(-2)
    interleaved = type1(x, torch.tensor([s])).unflatten(-1, (2, dim)).mT.flatten(-2)
    assert_close(type2(doubled, torch.tensor([s])), interleaved)


@pytest.mark.parametrize("name", FAMILY)
def test_the_names_in_the_family_stand_for_products(name):
    config = configure(name, 8, length=64, seed=0)
    same = {
        field: getattr(config, field)
        for field in ("length", "angles", "base", "learned_angles", "rotated", "rotated_share", "heads", "seed")
    }
    product = encoding(f"{config.basis}*{config.matrix}", 8, **same)
    x = features(5, 8)
    assert torch.equal(product(x), make(name, 8)(x))


@pytest.mark.parametrize("name", EVERY)
def test_an_encoding_tells_attention_what_it_is(name):
    encode = make(name, 8)
    assert encode.head_dim == 8
    assert encode.acts == ("before" if name in BASELINES else "after")
    assert encode.relative == (name != "spe")
    assert (encode.decay is not None) == (name == "per")
    assert encode.axes == 1
    assert encode.score_scale == 1.0


@pytest.mark.parametrize(
    ("call", "values"),
    [
        (lambda: encoding("type4", 8), ["'type4'", "'type1'"]),
        (lambda: encoding("fourier*unitery", 8), ["'fourier*unitary'"]),
        (lambda: encoding("fourier*stochastic", 8), ["'fourier*stochastic'"]),
        (lambda: encoding("type1", 8, haeds=3), ["'haeds'", "'heads'"]),
        (lambda: encoding("per", 8), ["heads="]),
        (lambda: encoding("spe", 8), ["heads="]),
        (lambda: encoding("cosformer", 8), ["length="]),
        (lambda: encoding("rope", 0), ["head_dim=0"]),
    ],
)
def test_a_name_or_field_that_is_not_there_is_refused_with_the_nearest(call, values):
    with pytest.raises(LrpeError) as error:
        call()
    assert all(value in str(error.value) for value in values)


@pytest.mark.parametrize("name", [*FAMILY, *BASELINES, "fourier*unitary"])
def test_only_a_baseline_is_told_the_heads_and_what_is_asked_for_holds(name):
    assert configure_for_heads(name, 8, key_heads=4, length=64).heads == (4 if name in BASELINES else None)
    assert configure_for_heads(name, 8, key_heads=4, length=64, heads=2).heads == 2
