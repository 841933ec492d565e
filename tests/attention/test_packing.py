"""Packed sequences: who says where they begin, and the state that each of them leaves."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from lrpe import Causal, LinearAttention, LrpeError, SoftmaxAttention, linear_attention
from tests.attention.choices import SOME, WIDTH, Choice
from tests.encodings.compositions import features

ANEW = torch.tensor([0, 1, 2, 0, 1, 2])
TWO = torch.tensor([0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
@pytest.mark.parametrize("decay", [None, [0.9, 0.5]])
def test_positions_that_start_anew_are_refused_where_the_order_of_tokens_counts(decay, kind):
    layer, x = kind(WIDTH, 2, "rope", decay=decay).double(), features(1, 6, WIDTH)
    for call in (layer, layer.prefill):
        with pytest.raises(LrpeError, match=r"never fall.*\(0, 3\).*pass sequences or cu_seqlens"):
            call(x, positions=ANEW)


def test_the_function_refuses_them_too():
    q = features(1, 2, 6, 4)
    with pytest.raises(LrpeError, match=r"never fall.*\(0, 3\)"):
        linear_attention(q, q, q, "rope", decay=None, positions=ANEW)


@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
@pytest.mark.parametrize("decay", [None, [0.9, 0.5]])
def test_with_sequences_beside_them_they_are_the_positions_that_would_be_counted(decay, kind):
    layer, x = kind(WIDTH, 2, "rope", decay=decay).double(), features(1, 6, WIDTH)
    found = layer(x, positions=ANEW, sequences=TWO)
    assert_close(found, layer(x, sequences=TWO), rtol=0, atol=0)
    assert_close(found[:, 3:], layer(x[:, 3:]), rtol=1e-9, atol=1e-10)


def test_one_sequence_may_be_read_in_another_order_than_that_of_its_positions_if_it_is_said_to_be_one():
    layer, x = LinearAttention(WIDTH, 2, "rope", decay=None).double(), features(1, 6, WIDTH)
    order = torch.tensor([3, 0, 5, 1, 2, 4])
    y = layer(x[:, order], positions=order, sequences=torch.zeros(6, dtype=torch.long))
    assert_close(y[:, -1], everyone(layer)(x)[:, 4], rtol=1e-9, atol=1e-10)  # the last has seen all


def test_where_every_token_sees_every_other_positions_stand_in_any_order():
    layer, x = everyone(LinearAttention(WIDTH, 2, "rope", decay=None).double()), features(1, 6, WIDTH)
    order = torch.tensor([3, 0, 5, 1, 2, 4])
    assert_close(layer(x[:, order], positions=order), layer(x)[:, order], rtol=1e-9, atol=1e-10)


def everyone(layer):
    both_ways = LinearAttention(WIDTH, 2, layer.encoding, summation="bidirectional", decay=None).double()
    both_ways.load_state_dict(layer.state_dict())
    return both_ways


@pytest.mark.parametrize("choice", SOME, ids=str)
@settings(max_examples=4)
@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_every_packed_sequence_leaves_the_state_that_it_leaves_alone(choice, lengths, seed):
    layer = choice.build(Causal(4))
    x, bounds = features(1, sum(lengths), WIDTH, seed=seed), torch.tensor([0, *lengths]).cumsum(0)
    _, states = layer.prefill(x, cu_seqlens=bounds)
    for row, text in enumerate(x.split(lengths, 1)):
        _, alone = layer.prefill(text)
        assert_close(states.select(torch.tensor([row])), alone, rtol=1e-9, atol=1e-9)


def test_a_sequence_of_many_blocks_beside_short_ones_leaves_its_state():
    layer, lengths = Choice("type2", "plain", "explicit").build(), [1, 200, 0, 2, 65]
    x = features(1, sum(lengths), WIDTH).requires_grad_()
    _, states = layer.prefill(x, cu_seqlens=torch.tensor([0, *lengths]).cumsum(0))
    alone = [layer.prefill(text)[1] for text in x.split(lengths, 1)]
    expected = [torch.cat(parts) for parts in zip(*(state[:3] for state in alone), strict=True)]
    assert_close(list(states[:3]), expected, rtol=1e-9, atol=1e-9)
    gradients = [torch.autograd.grad(S.sin().sum() + z.cos().sum(), x)[0] for S, z, *_ in (states, expected)]
    assert_close(*gradients, rtol=1e-9, atol=1e-9)


def test_states_of_packed_sequences_are_summed_only_if_they_are_asked_for(monkeypatch):
    def refuse(*_):
        raise AssertionError("nobody asked for these states")

    monkeypatch.setattr("lrpe.attention.linear.packed_states", refuse)
    x, told = features(1, 6, WIDTH), {"cu_seqlens": torch.tensor([0, 2, 6])}
    layer = LinearAttention(WIDTH, 2).double()
    layer(x, **told)
    _, state = linear_attention(*layer.project(x, x), **told, output_final_state=False)
    assert state is None
    with pytest.raises(AssertionError, match="nobody asked"):
        layer.prefill(x, **told)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_boundaries_are_those_of_flash_attention_and_fla(dtype):
    """One row of tokens, N + 1 boundaries, N states of (key heads, features, values), the empty sequences too."""
    q, k, v = features(1, 7, 4, 6), features(1, 7, 2, 6, seed=1), features(1, 7, 2, 5, seed=2)
    bounds = torch.tensor([0, 3, 3, 7], dtype=dtype)
    out, states = linear_attention(q, k, v, "none", decay=None, layout="bnhd", cu_seqlens=bounds)
    assert out.shape == (1, 7, 4, 5)
    assert states is not None
    assert states.S.shape == (3, 2, 6, 5)
    phi = torch.nn.functional.elu(k) + 1
    assert_close(states.S[2], torch.einsum("nhf,nhe->hfe", phi[0, 3:], v[0, 3:]), rtol=1e-10, atol=1e-10)
