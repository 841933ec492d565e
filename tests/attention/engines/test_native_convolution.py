"""The native convolution agrees with torch's operations for every layout of its tensors."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import lrpe
from lrpe.attention import convolution as short
from lrpe.attention.engines.native_convolution import can_convolve, convolve_by_torch, convolve_native
from lrpe.errors import LrpeError

pytestmark = pytest.mark.skipif(lrpe.engines.status()["native"] != "ready", reason="the native engine is not built")


def draw(seed, batch, n, channels, kernel, before, windowed, joined=False):
    """Return x, w and the window; ``joined`` makes them slices of wider tensors."""
    generator = torch.Generator().manual_seed(seed)
    extra = 3 if joined else 0
    x, w, first = (
        torch.randn(*shape, generator=generator)
        for shape in ((batch, n, channels + extra), (channels, kernel), (batch, before, channels + extra))
    )
    x, first = x[..., extra:], first[..., extra:]
    return x.detach().requires_grad_(), w.requires_grad_(), first.detach().requires_grad_() if windowed else None


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    batch=st.integers(1, 3),
    n=st.one_of(st.integers(2, 9), st.sampled_from([255, 256, 257, 600])),
    channels=st.one_of(st.integers(1, 40), st.just(192)),
    kernel=st.integers(2, 6),
    data=st.data(),
)
def test_outputs_and_gradients_are_those_of_torch(seed, batch, n, channels, kernel, data):
    before, windowed = data.draw(st.integers(0, kernel - 1)), data.draw(st.booleans())
    inputs = draw(seed, batch, n, channels, kernel, before, windowed, joined=data.draw(st.booleans()))
    assert can_convolve(*inputs[:2])
    g = torch.randn(batch, channels, n, generator=torch.Generator().manual_seed(seed + 1)).mT  # of another layout
    asked = [x for x in inputs if x is not None]
    y, expected = convolve_native(*inputs, before), convolve_by_torch(*inputs, before)
    assert_close(y, expected, rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad(y, asked, g)
    for gradient, exact in zip(found, torch.autograd.grad(expected, asked, g), strict=True):
        assert_close(gradient, exact, rtol=1e-4, atol=1e-4)


def test_gradients_can_be_differentiated_again_and_taken_in_a_batch():
    x, w, first = draw(0, 2, 7, 5, 4, 3, windowed=True)
    seconds = []
    for compute in (convolve_native, convolve_by_torch):
        (dw,) = torch.autograd.grad(compute(x, w, first, 3).square().sum(), w, create_graph=True)
        seconds.append(torch.autograd.grad(dw.square().sum(), (x, w, first)))
    for found, expected in zip(*seconds, strict=True):
        assert_close(found, expected)
    y, rows = convolve_native(x, w, first, 3), torch.randn(3, 2, 7, 5)
    (batched,) = torch.autograd.grad(y, x, rows, is_grads_batched=True, retain_graph=True)
    assert_close(batched, torch.stack([torch.autograd.grad(y, x, g, retain_graph=True)[0] for g in rows]))


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_an_input_without_a_gradient_does_not_change_those_of_the_others(frozen):
    inputs = list(draw(0, 2, 9, 4, 4, 3, windowed=True))
    inputs[frozen] = inputs[frozen].detach()
    asked = [x for x in inputs if x.requires_grad]
    found, expected = (
        torch.autograd.grad(compute(*inputs, 3).square().sum(), asked)
        for compute in (convolve_native, convolve_by_torch)
    )
    for gradient, exact in zip(found, expected, strict=True):
        assert_close(gradient, exact, rtol=1e-4, atol=1e-5)


def test_tensors_that_the_kernel_would_misread_are_refused_or_resolved():
    x, w, first = (tensor.detach() for tensor in draw(0, 2, 9, 4, 4, 3, windowed=True))
    for wrong in ((x.double(), w, first), (x, w.bfloat16(), None), (x[..., :3], w, None), (x, w, first[:, :2])):
        with pytest.raises(LrpeError, match="The native convolution takes float32"):
            convolve_native(*wrong, 3)
    negative = torch._neg_view(x)
    assert_close(convolve_native(negative, w, first, 3), -convolve_native(x, w, -first, 3))


class Rounded(torch.nn.Module):
    """A projection to bfloat16, as an adapter or a quantised layer may be."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.weight = layer, layer.weight

    def forward(self, x):
        return self.layer(x).bfloat16()


@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj"])
def test_a_projection_of_another_dtype_is_convolved_by_torch(name):
    layer, x = lrpe.LinearAttention(16, heads=2, convolution=4, decay=None), torch.randn(2, 9, 16)
    layer._modules[name] = Rounded(layer._modules[name])
    with lrpe.engines.use("torch"):
        expected = layer(x)
    assert_close(layer(x), expected, rtol=1e-2, atol=1e-2)


def test_threads_do_not_change_outputs_or_gradients():
    x, w, _ = draw(0, 2, 2048, 256, 4, 3, windowed=False)
    results, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            y = convolve_native(x, w, None, 3)
            results.append((y, *torch.autograd.grad(y.square().sum(), (x, w))))
    finally:
        torch.set_num_threads(before)
    for one, several in zip(*results, strict=True):
        assert_close(one, several, rtol=0, atol=0)


@pytest.mark.parametrize("causal", [True, False])
def test_a_layer_uses_the_kernel_and_leaves_to_torch_what_it_cannot_compute(causal, monkeypatch):
    calls = []
    monkeypatch.setattr(short, "convolve_native", lambda *inputs: calls.append(1) or convolve_native(*inputs))
    summation = "causal" if causal else "bidirectional"
    layer = lrpe.LinearAttention(16, heads=2, convolution=4, decay="gated", summation=summation)
    torch.nn.init.normal_(layer.convolution.weight)
    x, mask = torch.randn(2, 9, 16), torch.ones(2, 9, dtype=torch.bool)
    mask[0, :4] = False
    y, padded = layer(x), layer(x, mask=mask)
    assert len(calls) == 3 + 1  # q, k and v apart; with padding, all channels of the real tokens together
    with lrpe.engines.use("torch"):
        assert_close(layer(x), y, rtol=1e-4, atol=1e-5)
        assert_close(layer(x, mask=mask)[mask], padded[mask], rtol=1e-4, atol=1e-5)
    assert torch.func.vmap(layer, in_dims=1, out_dims=1)(x[:, None]).shape == (2, 1, 9, 16)
    assert layer.double()(x.double()).dtype == torch.float64
    assert len(calls) == 4


@pytest.mark.parametrize("cut", [1, 2, 5, 7])
def test_a_text_that_is_cut_leaves_the_same_window(cut):
    layer = lrpe.LinearAttention(16, heads=2, convolution=4)
    torch.nn.init.normal_(layer.convolution.weight)
    x = torch.randn(1, 9, 16)
    whole, state = layer.prefill(x)
    first, middle = layer.prefill(x[:, :cut])
    second, last = layer.prefill(x[:, cut:], middle)
    assert_close(torch.cat([first, second], 1), whole, rtol=1e-4, atol=1e-5)
    assert_close(last.window, state.window)
