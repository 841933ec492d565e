"""Every composition is differentiable in x and in all that it learns."""

from itertools import product

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.testing import assert_close

from lrpe import LinearAttention, SoftmaxAttention, encoding
from tests.encodings.compositions import EVERY, features, make


def parts(name, **changes):
    """The encoding as a function of x and of what it can learn: α, v, A."""
    changes |= {"learned_angles": True, "learned_basis": True, "reflections": 2}
    encode = make(name, 4, **changes).double().eval()
    learned = {
        key: value.detach().clone().requires_grad_() for key, value in encode.named_parameters() if value.numel()
    }
    positions = torch.tensor([-3, 0, 7])

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = encode

        def forward(self, x):
            table = self.encode.table(positions, x.dtype)
            return self.encode.query(x, table), self.encode.key(x, table)

    def apply(x, *values):
        state = {f"encode.{key}": value for key, value in zip(learned, values, strict=True)}
        return torch.func.functional_call(Both(), state, (x,))

    return apply, (features(3, 3, 4).requires_grad_(), *learned.values())


@pytest.mark.parametrize("name", EVERY)
def test_gradients_are_those_of_finite_differences(name):
    apply, inputs = parts(name, heads=3)
    assert gradcheck(apply, inputs, fast_mode=True)


@pytest.mark.parametrize("name", ["type1", "type2", "type3", "learned*orthogonal", "fourier*unitary", "spe"])
def test_gradients_of_gradients_too(name):
    apply, inputs = parts(name, heads=3)
    assert gradgradcheck(apply, inputs, fast_mode=True)


@pytest.mark.parametrize("name", ["type1", "type2", "type3", "rope"])
def test_a_derivative_taken_forward_is_the_encoding_of_its_direction(name):
    encode = make(name, 4, learned_angles=False)
    x, direction = features(3, 4), features(3, 4, seed=1)
    with forward_ad.dual_level():
        _, found = forward_ad.unpack_dual(encode(forward_ad.make_dual(x, direction)))
    assert_close(found, encode(direction))


@pytest.mark.parametrize(
    ("name", "learned"),
    [
        ("type1", {"matrix.angles.log_alpha", "basis.v"}),
        ("type2", {"matrix.angles.log_alpha", "basis.v"}),
        ("learned*unitary", {"matrix.angles.log_alpha", "basis.A"}),
        ("type3", {"basis.v"}),
    ],
)
def test_what_is_learned_gets_a_gradient_through_a_score(name, learned):
    encode = make(name, 8, learned_angles=True, learned_basis=True)
    q, k = features(5, 8), features(5, 8, seed=1)
    (encode(q) @ encode(k).mT).square().sum().backward()
    gradients = {key: parameter.grad for key, parameter in encode.named_parameters()}
    assert set(gradients) == learned
    assert all(gradient is not None and gradient.abs().max() > 1e-4 for gradient in gradients.values())


@pytest.mark.parametrize("name", ["type1", "type2", "type3", "fourier*orthogonal"])
def test_vmap_over_x_is_the_batch(name):
    encode, x = make(name, 6), features(4, 5, 6)
    torch.testing.assert_close(torch.func.vmap(encode)(x), encode(x))


@pytest.mark.parametrize("name", EVERY)
def test_a_gradient_may_lie_anywhere_in_memory(name):
    """Autograd's gradient of ``view_as_real`` fails on one row of an odd width, which lies at an odd place."""
    encode = make(name, 5, learned_angles=True).eval()
    for offset, shape in product((0, 1), ((3, 1, 5), (1, 3, 1, 5), (3, 2, 5))):
        x = features(*shape).requires_grad_()
        encoded = encode.query(x, encode.table(torch.arange(shape[-2]), x.dtype))
        g = features(*encoded.shape, seed=1)
        elsewhere = torch.zeros(g.numel() + 1, dtype=g.dtype)[offset : offset + g.numel()].view_as(g).copy_(g)
        inputs = [x, *(p for p in encode.parameters() if p.numel())]
        found = torch.autograd.grad(encoded, inputs, elsewhere, retain_graph=True, allow_unused=True)
        assert_close(found, torch.autograd.grad(encoded, inputs, g.clone(), allow_unused=True))


@pytest.mark.parametrize(
    "run",
    [
        lambda: LinearAttention(7, 1, "fourier*orthogonal")(torch.randn(1, 1, 7)),
        lambda: encoding("rope", 5, axes=2)(torch.ones(1, 5, requires_grad=True), torch.tensor([[1, 2]])),
        lambda: stepped(SoftmaxAttention(3, 1, "rope")),
    ],
)
def test_one_row_of_an_odd_width_has_a_gradient(run):
    run().sum().backward()


def stepped(attention):
    _, state = attention.prefill(torch.ones(1, 1, 3))
    return attention.step(torch.ones(1, 3), state)[0]


@pytest.mark.parametrize("name", ["type1", "type2", "type3", "fourier*orthogonal"])
def test_gradients_of_a_batch_at_once_are_the_gradients_one_by_one(name):
    encode, x = make(name, 5, learned_angles=False), features(3, 5).requires_grad_()
    encoded = encode(x)
    g = features(4, *encoded.shape, seed=1)
    (found,) = torch.autograd.grad(encoded, x, g, is_grads_batched=True, retain_graph=True)
    assert_close(found, torch.stack([torch.autograd.grad(encoded, x, one, retain_graph=True)[0] for one in g]))
