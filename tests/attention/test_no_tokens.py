"""A text of no tokens has an output of no tokens, with a gradient, and leaves a state as it was."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import Bidirectional, Causal, LinearAttention, Quadratic, SoftmaxAttention, linear_attention
from tests.encodings.compositions import features

WIDTH = 8
LONG = {"dtype": torch.long}
TOLD = {
    "nothing": {},
    "a mask": {"mask": torch.ones(1, 0, dtype=torch.bool)},
    "positions": {"positions": torch.zeros(0, **LONG)},
    "sequences": {"sequences": torch.zeros(0, **LONG)},
    "cu_seqlens": {"cu_seqlens": torch.tensor([0])},
    "empty sequences": {"cu_seqlens": torch.tensor([0, 0, 0])},
    "a mask and sequences": {"mask": torch.ones(1, 0, dtype=torch.bool), "sequences": torch.zeros(1, 0, **LONG)},
}
SUMMATIONS = {
    "causal": Causal(4),
    "bidirectional": Bidirectional(4),
    "matrix, causal": Quadratic(),
    "matrix": Quadratic(causal=False),
}


def check_gradients(y, inputs):
    assert y.isfinite().all()
    gradients = torch.autograd.grad(y.sum(), inputs, allow_unused=True)
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)
    assert gradients[0].shape == inputs[0].shape


@pytest.mark.parametrize("told", TOLD.values(), ids=TOLD)
@pytest.mark.parametrize("decay", [None, "spread"])
@pytest.mark.parametrize("how", SUMMATIONS.values(), ids=SUMMATIONS)
def test_the_function_of_no_tokens(how, decay, told):
    q, k, v = (features(1, heads, 0, 4).requires_grad_() for heads in (4, 2, 2))
    out, state = linear_attention(q, k, v, "type2", summation=how, decay=decay, **told)
    assert out.shape == (1, 4, 0, 4)
    check_gradients(out, [q, k, v])
    if how.causal:
        sequences = len(told["cu_seqlens"]) - 1 if "cu_seqlens" in told else 1
        assert state is not None
        assert state.S.shape == (sequences, 2, 4, 4)
        assert all((tensor == 0).all() for tensor in state[:3])


@pytest.mark.parametrize("told", TOLD.values(), ids=TOLD)
@pytest.mark.parametrize("decay", [None, "spread"])
@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
def test_a_layer_of_no_tokens(summation, kind, decay, told):
    layer, x = kind(WIDTH, 2, "type1", summation=summation, decay=decay).double(), features(1, 0, WIDTH)
    y = layer(x.requires_grad_(), **told)
    assert y.shape == (1, 0, WIDTH)
    check_gradients(y, [x, *layer.parameters()])


@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
@pytest.mark.parametrize("normalizer", ["plain", "encoded", "output"])
def test_no_tokens_leave_a_state_as_it_was(normalizer, kind):
    options = {"normalizer": normalizer} if kind is LinearAttention else {}
    layer, x = kind(WIDTH, 2, decay=[0.5, 0.9], **options).double(), features(2, 5, WIDTH)
    _, state = layer.prefill(x[:, :3])
    for told in ({}, {"mask": torch.ones(2, 0, dtype=torch.bool)}, {"positions": torch.zeros(2, 0, **LONG)}):
        y, after = layer.prefill(x[:, :0], state, **told)
        assert y.shape == (2, 0, WIDTH)
        assert_close(after.position, state.position)
        whole, _ = layer.prefill(x[:, 3:], after)
        assert_close(whole, layer(x)[:, 3:], rtol=1e-9, atol=1e-10)


def test_the_function_of_no_tokens_goes_on_from_a_state_with_a_gradient():
    q, x = features(2, 2, 3, 4), features(2, 2, 0, 4).requires_grad_()
    _, state = linear_attention(q, q, q)
    out, after = linear_attention(x, x, x, state=state)
    check_gradients(out, [x])
    assert after is state


@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
def test_a_context_of_no_tokens_gives_nothing(kind):
    layer, x = kind(WIDTH, 2, "rope", summation="bidirectional", decay=None).double(), features(2, 3, WIDTH)
    y = layer(x.requires_grad_(), x[:, :0])
    assert_close(y, layer.o_proj.bias.expand_as(y), rtol=0, atol=0)
    check_gradients(y, [x])


@pytest.mark.parametrize("decay", [None, "spread", "gated"])
@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
def test_a_batch_of_no_rows_passes_every_sum_with_a_gradient(kind, decay):
    x = features(0, 5, WIDTH).requires_grad_()
    for summation in ("causal", "bidirectional", Quadratic()):
        layer = kind(WIDTH, 4, "type2", key_heads=2, summation=summation, decay=decay).double()
        y = layer(x)
        assert y.shape == (0, 5, WIDTH)
        check_gradients(y, [x])
        if layer.causal:
            out, _ = layer.step(x[:, 0], layer.prefill(x)[1])
            assert out.shape == (0, WIDTH)
