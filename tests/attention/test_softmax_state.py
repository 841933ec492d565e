"""The cache of softmax attention: in parts it gives what it gives as a whole."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import LrpeError, SoftmaxAttention
from tests.attention.softmax import KEY_HEADS, WIDTH, every, make, some
from tests.encodings.compositions import features


@torch.no_grad()
@every
@pytest.mark.parametrize("cut", [0, 4])
def test_a_prefill_and_steps_are_the_whole(choice, cut):
    layer, x = make(choice), features(2, 7, WIDTH)
    whole = layer(x)
    first, state = layer.prefill(x[:, :cut]) if cut else (whole[:, :0], layer.initial_state(2))
    middle, state = layer.prefill(x[:, cut : cut + 2], state)
    steps = []
    for token in x[:, cut + 2 :].unbind(1):
        out, state = layer.step(token, state)
        steps.append(out)
    assert_close(torch.cat([first, middle, torch.stack(steps, 1)], 1), whole)
    assert state.position.tolist() == [7, 7]
    assert state.keys.shape == (2, KEY_HEADS, 7, layer.encoding.feature_dim)


@torch.no_grad()
@some
def test_padded_rows_go_on_as_they_would_alone(choice):
    layer, x = make(choice), features(2, 7, WIDTH)
    mask = torch.tensor([[0, 0, 1, 1, 1, 0, 1], [1, 1, 1, 0, 1, 1, 1]]).bool()
    _, state = layer.prefill(x[:, :5], mask=mask[:, :5])
    assert state.position.tolist() == [3, 4]
    for i in (5, 6):
        out, state = layer.step(x[:, i], state, mask=mask[:, i])
    for b in range(2):
        assert_close(out[b], layer(x[b, mask[b]][None])[0, -1])
    assert state.position.tolist() == [4, 6]


@torch.no_grad()
def test_steps_go_on_from_negative_positions():
    layer, x = make("type1", decay=[0.5, 0.9]), features(1, 6, WIDTH)
    _, state = layer.prefill(x[:, :5], positions=torch.arange(-9, -4))
    assert state.position.tolist() == [-4]
    assert_close(layer.step(x[:, 5], state)[0], layer(x)[:, 5])


@torch.no_grad()
def test_a_decay_reaches_into_the_cache():
    layer, x, t = make("type1", decay=[0.5, 0.9]), features(1, 6, WIDTH), torch.tensor([0, 1, 5, 6, 20, 21])
    _, state = layer.prefill(x[:, :3], positions=t[:3])
    _, state = layer.prefill(x[:, 3:5], state, positions=t[3:5])
    assert_close(layer.step(x[:, 5], state)[0], layer(x, positions=t)[:, 5])


@torch.no_grad()
def test_rows_of_a_state_can_be_chosen_again():
    layer, x = make(), features(3, 4, WIDTH)
    _, state = layer.prefill(x[:, :3])
    rows = torch.tensor([2, 0, 2])
    assert_close(layer.step(x[rows, 3], state.select(rows))[0], layer(x)[rows, 3])


def test_gradients_flow_through_the_cache():
    layer, x = make("type2"), features(2, 5, WIDTH).requires_grad_()
    (whole,) = torch.autograd.grad(layer(x)[:, -1].square().sum(), x)
    _, state = layer.prefill(x[:, :4])
    (cached,) = torch.autograd.grad(layer.step(x[:, 4], state)[0].square().sum(), x)
    assert_close(cached, whole)


def test_packed_sequences_are_refused_because_they_would_share_a_state():
    layer, x = SoftmaxAttention(8, 2, "type2"), torch.ones(1, 5, 8)
    with pytest.raises(LrpeError, match=r"cu_seqlens must be None in prefill of a softmax layer.*padded batch"):
        layer.prefill(x, cu_seqlens=torch.tensor([0, 2, 5]))
    assert layer(x, cu_seqlens=torch.tensor([0, 2, 5])).shape == x.shape
