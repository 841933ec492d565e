"""Attention frees its tensors when it returns; none waits in a circle of references for the garbage collector."""

import gc

import pytest
import torch

import lrpe


@pytest.fixture
def garbage():
    """Collect before the test, and keep what the collector finds in it."""
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()


@pytest.mark.parametrize(
    "options", [{}, {"summation": "bidirectional", "decay": None}], ids=["causal", "bidirectional"]
)
@pytest.mark.parametrize("encoding", ["type1", "type2", "cosformer"])
def test_no_tensor_waits_for_the_garbage_collector(garbage, encoding, options):
    encode = lrpe.encoding(encoding, 8, **({"length": 20} if encoding == "cosformer" else {}))
    q, k, v = (x.requires_grad_() for x in torch.randn(3, 2, 2, 20, 8))
    for mask in (None, torch.arange(20) < torch.tensor([[20], [15]])):
        lrpe.linear_attention(q, k, v, encode, mask=mask, **options)[0].sum().backward()
        with lrpe.engines.use("torch"):
            lrpe.linear_attention(q, k, v, encode, mask=mask, **options)[0].sum().backward()
    gc.collect()
    assert [type(x) for x in garbage if isinstance(x, torch.Tensor)] == []
