"""Softmax attention in training: gradients, low precision, dropout, saving, compiling."""

import math

import pytest
import torch
from torch.testing import assert_close

from lrpe import SoftmaxAttention
from lrpe.attention import softmax, softmax_decay
from tests.attention.softmax import HEADS, KEY_HEADS, WIDTH, D, E, chosen, make, some
from tests.encodings.compositions import features


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("choice", ["none", "T5"])
def test_a_decay_too_strong_for_the_dtype_is_not_nan(choice, dtype):
    layer, x = make(choice, decay=[1e-3, 0.5]).to(dtype), features(1, 3, WIDTH, dtype=dtype).requires_grad_()
    out = layer(x, mask=torch.tensor([[1, 0, 0]]), positions=torch.tensor([0, 10**5, 10**9]))
    assert out.isfinite().all()
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert grad.isfinite().all()


@pytest.mark.parametrize("choice", ["type1", "type2", "RPR", "spe"])
def test_gradients_are_right(choice):
    layer, x = make(choice, decay=[0.5, 0.9]), features(2, 3, WIDTH).requires_grad_()
    mask = torch.tensor([[0, 1, 1], [1, 1, 0]])
    torch.autograd.gradcheck(lambda x: layer(x, mask=mask), x)
    layer(x, mask=mask).square().sum().backward()
    for name, weight in layer.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.ne(0).any(), name


@some
def test_low_precision_is_near_and_autocast_runs(choice):
    layer, x = make(choice), features(2, 6, WIDTH)
    half = make(choice).bfloat16()
    assert half(x.bfloat16()).dtype == torch.bfloat16
    rounding = torch.finfo(torch.bfloat16).eps  # the error is 0.005; Type 1 is 0.3 from Type 2
    assert_close(half(x.bfloat16()).double(), layer(x), rtol=0, atol=rounding)
    with torch.autocast("cpu", torch.bfloat16):
        _, state = layer.float().prefill(x[:, :5].float())
        last, _ = layer.step(x[:, 5].float(), state)
        assert_close(last, layer(x.float())[:, 5], rtol=0, atol=rounding)


def test_attention_dropout_acts_in_training_alone():
    for choice in ("type2", "T5"):
        layer, x = make(choice, attention_dropout=0.5), features(1, 8, WIDTH)
        assert_close(layer(x), make(choice)(x))
        layer.train()
        assert not torch.allclose(layer(x), layer(x))


def test_a_saved_layer_is_the_layer_that_is_loaded():
    for choice in ("type2", "T5", "per"):
        layer = make(choice)
        other = SoftmaxAttention(WIDTH, HEADS, chosen(choice), KEY_HEADS, D, E).double().eval()
        other.load_state_dict(layer.state_dict())
        assert_close(other(features(1, 4, WIDTH)), layer(features(1, 4, WIDTH)), rtol=0, atol=0)


@pytest.mark.slow
def test_it_compiles_to_one_graph():
    layer, x = make("type1", decay=[0.5, 0.9]), features(2, 6, WIDTH)
    assert_close(torch.compile(layer, fullgraph=True, backend="eager")(x), layer(x))


@pytest.mark.parametrize("decay", ["gated", "spread"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_decay_by_key_is_the_decay_by_pair(decay, dtype, monkeypatch):
    torch.manual_seed(0)
    layer = SoftmaxAttention(24, 4, "rope", key_heads=2, value_dim=9, decay=decay).to(dtype)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x, asked, results = torch.randn(2, 40, 24, dtype=dtype, requires_grad=True), [], []
    per_pair = softmax.token_bias if decay == "gated" else softmax.head_bias
    monkeypatch.setattr(softmax, per_pair.__name__, lambda *inputs: asked.append(1) or per_pair(*inputs))
    monkeypatch.setattr(softmax_decay, "_BLOCKS", (16, 4))
    for most in (128.0, -1.0):
        monkeypatch.setattr(softmax_decay, "_LARGEST_BIAS", most)
        y = layer(x)
        results.append((y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])))
    assert len(asked) == 1  # of the second pass
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13  # of the largest entry
    for found, expected in zip(*results, strict=True):
        assert (found - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize(("strongest", "blocks"), [(0.5, [256]), (0.51, [64]), (8.5, [16]), (8.6, []), (60.0, [])])
def test_a_stronger_decay_has_smaller_blocks_and_the_strongest_is_weighed_by_pair(strongest, blocks, monkeypatch):
    sizes, by_key = [], softmax.decayed_sum  # 255 steps of 0.5, and 15 steps of 8.5, are 127.5
    monkeypatch.setattr(softmax, "decayed_sum", lambda *inputs: sizes.append(inputs[4]) or by_key(*inputs))
    layer, x = SoftmaxAttention(8, 2, "none", decay=(math.exp(-strongest), 1.0)), torch.randn(1, 700, 8)
    rounded = layer(x)
    assert sizes == blocks
    assert_close(rounded, layer.double()(x.double()).float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("decay", ["gated", "spread", None])
def test_no_rows_and_scales_of_any_sign_and_size(decay):
    layer = SoftmaxAttention(8, 2, "rope", decay=decay)
    assert layer(torch.zeros(0, 5, 8)).shape == (0, 5, 8)
    x = torch.randn(2, 40, 8)
    for scale in (-0.3, 0.0, 1e-37):
        layer = SoftmaxAttention(8, 2, "rope", decay=decay, scale=scale)
        assert_close(layer(x), layer.double()(x.double()).float(), rtol=1e-4, atol=1e-5)


class Precise(torch.nn.Linear):
    """A projection that stays in float32 under autocast, as an adapter may."""

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return super().forward(x.float())


def test_under_autocast_a_decay_is_not_rounded_with_the_keys(monkeypatch):
    asked, per_pair = [], softmax.token_bias
    monkeypatch.setattr(softmax, "token_bias", lambda *inputs: asked.append(1) or per_pair(*inputs))
    layer, x = SoftmaxAttention(8, 2, "rope", decay="gated"), torch.randn(1, 40, 8)
    for name in ("q_proj", "k_proj", "v_proj"):
        layer._modules[name] = Precise(8, 8)
    layer(x)
    assert asked == []
    with torch.autocast("cpu"):
        layer(x)
    assert asked == [1]
