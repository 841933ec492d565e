"""Softmax attention over padded and packed rows, and where nothing is left to see."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from tests.attention.softmax import WIDTH, make, some
from tests.encodings.compositions import features


@torch.no_grad()
@some
@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
def test_padding_on_either_side_is_not_seen_and_not_counted(choice, summation):
    layer, x = make(choice, summation=summation), features(3, 6, WIDTH)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 1]]).bool()
    out = layer(x, mask=mask)
    for b in range(3):
        assert_close(out[b, mask[b]], layer(x[b, mask[b]][None])[0])
    assert_close(layer(x, mask=mask.int()), out, rtol=0, atol=0)


@torch.no_grad()
@some
@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
def test_packed_sequences_do_not_see_each_other(choice, summation):
    layer, x, bounds = make(choice, summation=summation), features(1, 9, WIDTH), (0, 4, 5, 9)
    alone = torch.cat([layer(x[:, a:b]) for a, b in itertools.pairwise(bounds)], 1)
    assert_close(layer(x, cu_seqlens=torch.tensor(bounds)), alone)
    assert_close(layer(x, sequences=torch.tensor([7, 7, 7, 7, 2, 9, 9, 9, 9])), alone)


@some
@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
def test_a_query_that_sees_no_key_gives_zero_and_no_gradient(choice, summation):
    layer = make(choice, summation=summation, bias=False)
    x = features(2, 4, WIDTH).requires_grad_()
    mask = torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1]]).bool()
    out = layer(x, mask=mask)
    assert out[0].eq(0).all()
    out[0].sum().backward(retain_graph=True)
    assert x.grad is not None
    assert x.grad.eq(0).all()
    out.square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in (x, *layer.parameters()))
    assert x.grad[1].ne(0).any()


@some
def test_no_keys_at_all_give_zero(choice):
    if choice != "per":
        layer = make(choice, summation="bidirectional", bias=False)
        out = layer(features(2, 3, WIDTH), features(2, 0, WIDTH))
        assert out.shape == (2, 3, WIDTH)
        assert out.eq(0).all()
    assert make(choice)(features(2, 0, WIDTH)).shape == (2, 0, WIDTH)
