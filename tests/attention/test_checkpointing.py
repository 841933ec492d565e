"""Activation checkpointing, of either kind, changes no gradient."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from tests.attention.choices import WIDTH, Choice
from tests.encodings.compositions import features


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
@pytest.mark.parametrize("decay", ["none", "spread"])
@pytest.mark.parametrize("encoding", ["type1", "type2", "type3", "per", "spe"])
def test_a_checkpointed_layer_has_the_gradients_of_the_layer(encoding, decay, summation, reentrant):
    layer = Choice(encoding, decay="none" if encoding == "per" else decay).build(summation)
    x = features(2, 70, WIDTH).requires_grad_()
    leaves = [x, *layer.parameters()]
    checkpointed = checkpoint(layer, x, use_reentrant=reentrant)
    for again, once in zip(gradients(checkpointed, leaves), gradients(layer(x), leaves), strict=True):
        assert_close(again, once)


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_native_engine_can_be_checkpointed(reentrant):
    layer, x = Choice("type2").build(dtype=torch.float32), features(2, 70, WIDTH).float().requires_grad_()
    leaves = [x, *layer.parameters()]
    checkpointed = checkpoint(layer, x, use_reentrant=reentrant)
    for again, once in zip(gradients(checkpointed, leaves), gradients(layer(x), leaves), strict=True):
        assert_close(again, once)


def gradients(y, leaves):
    for leaf in leaves:
        leaf.grad = None
    (y * features(*y.shape, seed=1).to(y)).sum().backward()
    return [leaf.grad for leaf in leaves]
