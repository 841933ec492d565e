"""A projection is torch's linear layer, however it is computed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import lrpe
from lrpe.attention import layer as attention_layer
from lrpe.attention.engines.library import can_multiply
from lrpe.attention.layer import Projection

needs_native = pytest.mark.skipif(lrpe.engines.status()["native"] != "ready", reason="the native engine is not built")


@needs_native
@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 8),
    sizes=st.tuples(st.integers(1, 70), st.integers(1, 150)),
    bias=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_a_few_rows_are_multiplied_as_by_torch_and_each_row_alone_gives_the_same(rows, sizes, bias, seed):
    torch.manual_seed(seed)
    layer, x = Projection(*sizes, bias=bias), torch.randn(sizes[0], rows).T
    with torch.inference_mode():
        assert can_multiply(x, layer.weight, layer.bias)
        found = layer(x[None])[0]
        assert_close(found, layer.double()(x.double()).float(), rtol=1e-5, atol=1e-5)
        assert_close(found, torch.cat([layer.float()(row[None]) for row in x]), rtol=0, atol=0)


@needs_native
def test_the_kernel_leaves_to_torch_what_it_cannot_compute(monkeypatch):
    monkeypatch.setattr(attention_layer, "multiply", lambda *_: pytest.fail("by the kernel"))
    layer, x = Projection(4, 3), torch.ones(1, 4)
    assert layer(x).requires_grad
    with torch.no_grad():
        assert layer(torch.ones(9, 4)).shape == (9, 3)
        assert layer(torch.ones(0, 4)).shape == (0, 3)
        assert torch.func.vmap(layer)(torch.ones(2, 4)).shape == (2, 3)
        with lrpe.engines.use("torch"):
            layer(x)
        with torch.autocast("cpu"):
            assert layer(x).dtype == torch.bfloat16
        assert not can_multiply(torch.ones(1, 5), layer.weight, layer.bias)  # torch raises its own error
        assert layer.double()(x.double()).dtype == torch.float64


@needs_native
def test_threads_do_not_change_a_product():
    layer, x, before = Projection(2048, 1100), torch.randn(1, 2048), torch.get_num_threads()
    try:
        with torch.inference_mode():
            torch.set_num_threads(2)
            several = layer(x)
            torch.set_num_threads(1)
            assert_close(several, layer(x), rtol=0, atol=0)
    finally:
        torch.set_num_threads(before)


def test_a_replaced_or_reparametrised_projection_is_the_one_that_is_used():
    layer, x = lrpe.LinearAttention(8, heads=2), torch.randn(1, 3, 8)
    layer.o_proj = torch.nn.Identity()
    joined = layer(x)
    layer._modules["o_proj"] = Projection(8, 5)  # as quantisation does
    torch.nn.utils.parametrize.register_parametrization(layer.o_proj, "weight", torch.nn.Softplus())
    torch.nn.utils.parametrize.register_parametrization(layer.o_proj, "bias", torch.nn.Tanh())
    assert_close(layer(x), torch.nn.functional.linear(joined, layer.o_proj.weight, layer.o_proj.bias))
    assert_close(layer.o_proj.weight, torch.nn.functional.softplus(layer.o_proj.parametrizations.weight.original))
    del layer.o_proj
    assert not hasattr(layer, "o_proj")
    with pytest.raises(AttributeError, match="no attribute 'o_proj'"):
        layer(x)
