"""``of`` is ``apply``: the same values and gradients, in every mode in which someone may ask for them."""

import pytest
import torch
from torch.func import grad, vmap
from torch.testing import assert_close

from lrpe.autograd import Differentiable


class Scaled(Differentiable):
    """c x, whose gradient is made wrong on purpose, g (c + 1): so that it tells which gradient was taken."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, c):
        return c * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.c = inputs[1]

    @staticmethod
    def backward(ctx, *grads):
        return grads[0] * (ctx.c + 1), None


def test_its_own_gradient_is_taken():
    x = torch.ones(3, requires_grad=True)
    y = Scaled.of(x, 2)
    assert_close(y, Scaled.apply(x, 2), rtol=0, atol=0)
    assert_close(torch.autograd.grad(y.sum(), x)[0], torch.full((3,), 3.0), rtol=0, atol=0)


def test_so_it_is_under_torch_func():
    x = torch.ones(3)  # asks for no gradient itself: the transform does
    assert grad(lambda x: Scaled.of(x, 2).sum())(x).tolist() == [3, 3, 3]
    assert vmap(grad(lambda x: Scaled.of(x, 2)))(x).tolist() == [3, 3, 3]


@pytest.mark.parametrize("asked", [True, False])
def test_where_nobody_can_ask_there_is_no_graph(asked):
    x = torch.ones(3, requires_grad=not asked)
    with torch.set_grad_enabled(asked):
        y = Scaled.of(x, 2)
    assert y.grad_fn is None
    assert y.tolist() == [2, 2, 2]
