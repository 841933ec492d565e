"""Gradients of the sums against finite differences, through states, and once more; a third time is refused."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from lrpe import Bidirectional, Causal, DecodingState, LrpeError, Quadratic, linear_attention
from tests.attention.choices import WIDTH, Choice
from tests.attention.frames import Frame, Start, solve
from tests.encodings.compositions import features

DECAY = torch.tensor([0.5, 0.9], dtype=torch.float64)
FRAMES = {
    "plain": Frame(),
    "decay": Frame(DECAY),
    "gaps": Frame(DECAY, torch.tensor([[0, 1, 5, 6, 6]])),
    "packed": Frame(DECAY, torch.tensor([[0, 1, 0, 1, 2]]), torch.tensor([[0, 0, 1, 1, 1]])),
}


def tensors(heads=4):
    """q, k, v, S and z of 5 tokens, with grouped queries."""
    sizes = ((1, heads, 5, 3), (1, 2, 5, 3), (1, 2, 5, 2), (1, 2, 3, 2), (1, 2, 3))
    return [features(*size, seed=i).requires_grad_() for i, size in enumerate(sizes)]


def sums_of(summation, frame, total):
    def run(q, k, v, S=None, z=None):
        start = None if S is None else Start(S, z, torch.tensor([2]))
        return tuple(part for part in solve(summation, q, k, v, frame, total, start) if part is not None)

    return run


@pytest.mark.parametrize("total", [True, False])
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_gradients_of_the_causal_sum_are_those_of_finite_differences(frame, total):
    inputs = tensors()
    assert gradcheck(sums_of(Causal(2), frame, total), inputs[:3], fast_mode=True)
    used = inputs if total else [*inputs[:4], inputs[4].detach()]
    assert gradcheck(sums_of(Causal(2), frame, total), used, fast_mode=True)


@pytest.mark.parametrize("total", [True, False])
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_gradients_of_the_causal_sums_gradients_too(frame, total):
    inputs = tensors()
    assert gradgradcheck(sums_of(Causal(2), frame, total), inputs[:3], fast_mode=True)
    used = inputs if total else [*inputs[:4], inputs[4].detach()]
    assert gradgradcheck(sums_of(Causal(2), frame, total), used, fast_mode=True)


@pytest.mark.parametrize("total", [True, False])
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_both_orders_of_the_bidirectional_sum(frame, total):
    inputs = tensors()[:3]
    assert gradcheck(sums_of(Bidirectional(2), frame, total), inputs, fast_mode=True)
    assert gradgradcheck(sums_of(Bidirectional(2), frame, total), inputs, fast_mode=True)


def test_a_third_derivative_is_refused_in_words():
    q, k, v, *_ = tensors()

    def derivative(y):
        return torch.autograd.grad(y.square().sum(), q, create_graph=True)[0]

    second = derivative(derivative(solve(Causal(2), q, k, v, Frame()).out))
    assert second.isfinite().all()
    with pytest.raises(LrpeError, match="only first and second derivatives"):
        derivative(second)


@pytest.mark.parametrize("name", ["type2", "none"])
def test_gradients_of_gradients_through_a_whole_layer(name):
    layer, reference = (Choice(name, "plain", "spread").build(how) for how in (Causal(2), Quadratic()))
    x, direction = features(2, 5, WIDTH).requires_grad_(), features(2, 5, WIDTH, seed=1)

    def curvature(layer):
        (slope,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad((slope * direction).sum(), x)[0]

    assert_close(curvature(layer), curvature(reference), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("normalizer", ["plain", "encoded", "output"])
def test_a_loss_on_the_last_token_reaches_the_first_through_states(normalizer):
    layer, x = Choice("type2", normalizer, "spread").build(Causal(3)), features(2, 9, WIDTH).requires_grad_()
    (expected,) = torch.autograd.grad(layer(x)[:, -1].square().sum(), x)
    _, state = layer.prefill(x[:, :4])
    _, state = layer.prefill(x[:, 4:7], state)
    _, state = layer.step(x[:, 7], state)
    y, _ = layer.step(x[:, 8], state)
    (found,) = torch.autograd.grad(y.square().sum(), x)
    assert_close(found, expected, rtol=1e-9, atol=1e-11)
    assert found[:, 0].abs().max() > 1e-6


def test_a_detached_state_ends_the_gradient_there_and_changes_no_value():
    layer, x = Choice("type2", "plain", "spread").build(Causal(3)), features(2, 9, WIDTH).requires_grad_()
    _, state = layer.prefill(x[:, :5])
    whole, cut = (layer.prefill(x[:, 5:], s)[0] for s in (state, state.detach()))
    assert_close(cut, whole, rtol=0, atol=0)
    (through,), (ended,) = (torch.autograd.grad(y.square().sum(), x, retain_graph=True) for y in (whole, cut))
    assert (ended[:, :5] == 0).all()
    assert through[:, :5].abs().max() > 1e-6
    assert ended[:, 5:].abs().max() > 1e-6


@pytest.mark.parametrize("normalizer", ["plain", "encoded"])
@pytest.mark.parametrize("n", [1, 4])
def test_a_state_has_a_gradient_of_its_own(n, normalizer):
    """Into S and z, by the chunkwise pass and by a step, against finite differences."""
    layer = Choice("type1", normalizer, "spread").build(Causal(3))
    _, given = layer.prefill(features(1, 5, WIDTH))
    x = features(1, n, WIDTH, seed=1)

    def run(S, z):
        y, state = layer.prefill(x, DecodingState(S, z, given.position))
        return y, state.S, state.z

    S, z = (tensor.detach().requires_grad_() for tensor in (given.S, given.z))
    assert gradcheck(run, (S, z), fast_mode=True)
    assert gradgradcheck(run, (S, z), fast_mode=True)


@pytest.mark.parametrize("name", ["none", "rope", "type1", "type2", "type3"])
def test_gradients_of_the_sum_over_all_keys_come_in_batches(name):
    def run(*qkv):
        return linear_attention(*qkv, name, summation="bidirectional", decay=None)[0]

    assert gradcheck(run, [features(1, h, 3, 4, seed=h).requires_grad_() for h in (4, 2, 2)], check_batched_grad=True)


@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
def test_one_tensor_may_be_queries_keys_and_values(summation):
    x = features(2, 2, 5, 4).requires_grad_()

    def derivatives(q, k, v):
        y = linear_attention(q, k, v, "type2", "identity", "plain", summation=summation, decay=None)[0]
        (first,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
        return first, torch.autograd.grad(first.square().sum(), x)[0]

    assert_close(derivatives(x, x, x), derivatives(x * 1, x * 1, x * 1), rtol=1e-10, atol=1e-10)
