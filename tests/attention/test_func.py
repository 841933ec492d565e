"""torch.func: gradients of single examples, functional calls, Jacobians."""

import pytest
import torch
from torch.func import functional_call, grad, jacrev, vmap
from torch.testing import assert_close

from lrpe import Bidirectional, Causal, Quadratic, encoding, linear_attention
from tests.attention.choices import SOME, WIDTH, Choice
from tests.encodings.compositions import features

LAYERS = [choice.build(how) for choice in SOME for how in (Causal(3), Bidirectional(3))]
IDS = [f"{choice}-{how}" for choice in SOME for how in ("causal", "bidirectional")]


def loss(parameters, layer, x, mask=None):
    options = {} if mask is None else {"mask": mask[None]}
    return functional_call(layer, parameters, (x[None],), options).square().sum()


@pytest.mark.parametrize("layer", LAYERS, ids=IDS)
def test_gradients_of_each_example_are_those_of_the_examples_one_by_one(layer):
    parameters = {name: value.detach() for name, value in layer.named_parameters()}
    x = features(3, 7, WIDTH)
    found = vmap(grad(loss), in_dims=(None, None, 0))(parameters, layer, x)
    for i in range(3):
        alone = torch.autograd.grad(layer(x[i : i + 1]).square().sum(), list(layer.parameters()), allow_unused=True)
        for (name, value), expected in zip(layer.named_parameters(), alone, strict=True):
            expected = torch.zeros_like(value) if expected is None else expected
            assert_close(found[name][i], expected, rtol=1e-7, atol=1e-8 * max(expected.abs().max().item(), 1))


def test_examples_may_have_masks_of_their_own():
    layer = Choice("type2", "plain", "spread").build(Causal(3))
    parameters = {name: value.detach() for name, value in layer.named_parameters()}
    x, mask = features(3, 7, WIDTH), torch.tensor([[1] * 7, [0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]]).bool()
    found = vmap(grad(loss), in_dims=(None, None, 0, 0))(parameters, layer, x, mask)
    for i in range(3):
        alone = grad(loss)(parameters, layer, x[i], mask[i])
        assert_close({name: value[i] for name, value in found.items()}, alone, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
def test_examples_may_have_decays_and_steps_of_their_own(summation):
    encode = encoding("type2", 6, seed=0).double().requires_grad_(False)
    q, k, v = (features(3, 1, 2, 7, 6, seed=i) for i in range(3))
    log_decay, steps = -features(3, 1, 2, 7, seed=3).abs(), features(3, 1, 1, 7, seed=4)

    def attend(*tensors):
        options = {"log_decay": tensors[3], "steps": tensors[4], "summation": summation}
        return linear_attention(*tensors[:3], encode, **options)[0].square().sum()

    each = grad(attend, argnums=(0, 1, 2, 3, 4))
    found = vmap(each)(q, k, v, log_decay, steps)
    for i in range(3):
        alone = each(q[i], k[i], v[i], log_decay[i], steps[i])
        assert_close([x[i] for x in found], list(alone), rtol=1e-8, atol=1e-8)


def test_a_functional_call_uses_the_parameters_that_it_is_given():
    layer, other = Choice("type2").build(), Choice("type2").build()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5).add_(0.1)  # log_alpha begins at 0
    x = features(2, 5, WIDTH)
    assert_close(functional_call(layer, dict(other.named_parameters()), (x,)), other(x), rtol=0, atol=0)


@pytest.mark.parametrize("causal", [True, False])
def test_the_jacobian_is_that_of_the_specification(causal):
    fast, slow = (Choice("type1", "plain", "spread").build(how) for how in (Causal(2), Quadratic(causal)))
    if not causal:
        fast.summation = Bidirectional(2)
    x = features(1, 4, WIDTH)
    found = jacrev(fast)(x)
    assert_close(found, jacrev(slow)(x), rtol=1e-9, atol=1e-10)
    later = torch.ones(4, 4).triu(1).bool()  # a causal query has no gradient from what comes after it
    assert (found[0][:, :, 0].transpose(1, 2)[later] == 0).all() == causal


@pytest.mark.parametrize("causal", [True, False])
def test_so_is_the_hessian(causal):
    fast, slow = (Choice("type2", "plain", "spread").build(how) for how in (Causal(2), Quadratic(causal)))
    if not causal:
        fast.summation = Bidirectional(2)
    x = features(1, 3, WIDTH)

    def curvature(layer):
        return jacrev(jacrev(lambda x: layer(x).square().sum()))(x)

    assert_close(curvature(fast), curvature(slow), rtol=1e-8, atol=1e-9)
