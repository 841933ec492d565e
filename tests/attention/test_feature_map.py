"""φ by name, by formula and of the user's own."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from lrpe import LinearAttention, LrpeError, Quadratic, linear_attention
from lrpe.attention.feature_map import FEATURE_MAPS, RandomFeatures, choose_feature_map, elu_plus_one
from tests.encodings.compositions import features, seeds

FORMULAS = {
    "elu+1": lambda x: x + 1 if x > 0 else math.exp(x),
    "relu": lambda x: max(x, 0.0),
    "relu+1e-3": lambda x: max(x, 0.0) + 1e-3,
    "relu2": lambda x: max(x, 0.0) ** 2,
    "exp": math.exp,
    "silu": lambda x: x / (1 + math.exp(-x)),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "identity": lambda x: x,
}


@given(x=st.floats(-20, 20))
def test_every_name_is_its_formula(x):
    assert {*FORMULAS, "favor+"} == set(FEATURE_MAPS)
    for name, formula in FORMULAS.items():
        phi = choose_feature_map(name, 1)
        assert_close(phi(torch.tensor([x], dtype=torch.float64)).item(), float(formula(x)), rtol=1e-6, atol=1e-9)


@given(x=st.lists(st.floats(-30, 30).filter(lambda x: abs(x) > 1e-9), min_size=1, max_size=8))
def test_the_cheaper_form_is_1_plus_elu_with_its_first_and_second_derivative(x):
    x = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    derivatives = []
    for phi in (elu_plus_one, lambda x: 1 + nn.functional.elu(x)):
        y = phi(x)
        (first,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        derivatives.append((y, first, second))
    assert_close(derivatives[0], derivatives[1], rtol=1e-9, atol=1e-12)


def test_its_derivatives_are_those_of_finite_differences():
    x = torch.tensor([-3.0, -0.5, 0.5, 4.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(elu_plus_one, x)
    assert gradgradcheck(elu_plus_one, x)


def test_far_below_zero_it_keeps_digits_that_1_plus_elu_loses():
    x = torch.tensor([-30.0])
    assert_close(elu_plus_one(x), x.exp(), rtol=1e-6, atol=0)
    assert (1 + nn.functional.elu(x)).item() == 0


@pytest.mark.parametrize("d", [3, 8])
def test_random_features_have_the_softmax_kernel_as_their_mean(d):
    """E[φ(q)·φ(k)] = exp(q·k/√d): the mean over independent draws lies within 5 standard errors of it."""
    q, k = features(6, d) / 2, features(6, d, seed=1) / 2
    draws = torch.stack([phi(q).mul(phi(k)).sum(-1) for phi in (RandomFeatures(d, 4 * d, seed=s) for s in range(3000))])
    exact, error = (q * k).sum(-1).div(math.sqrt(d)).exp(), draws.std(0) / math.sqrt(len(draws))
    assert ((draws.mean(0) - exact).abs() < 5 * error).all()
    assert (error < 0.02 * exact).all()  # so that a kernel off by a tenth would be seen


def test_random_directions_are_orthogonal_in_blocks_and_as_long_as_gaussian_ones():
    phi = RandomFeatures(16, 40, seed=3)
    gram = phi.omega[:16] @ phi.omega[:16].mT
    assert_close(gram - torch.diag(gram.diagonal()), torch.zeros(16, 16), rtol=0, atol=1e-4)
    lengths = torch.cat([RandomFeatures(16, 16, seed=s).omega.square().sum(-1) for s in range(200)])
    assert abs(lengths.mean().item() - 16) < 5 * math.sqrt(2 * 16 / len(lengths))  # χ² of 16 degrees


@given(seed=seeds)
def test_the_seed_decides_the_directions_and_they_are_saved(seed):
    first, again, other = (RandomFeatures(5, 12, seed=s) for s in (seed, seed, seed + 1))
    assert torch.equal(first.omega, again.omega)
    assert not torch.equal(first.omega, other.omega)
    other.load_state_dict(first.state_dict())
    assert torch.equal(first.omega, other.omega)


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_every_name_serves_a_layer_from_pass_to_step(name):
    layer = LinearAttention(12, 3, "type2", feature_map=name, normalizer="output", decay=[0.9, 0.8, 0.7]).double()
    x = features(2, 6, 12)
    _, state = layer.prefill(x[:, :5])
    y, _ = layer.step(x[:, 5], state)
    reference = layer(x)
    assert_close(y, reference[:, 5], rtol=1e-9, atol=1e-10)
    layer.summation = Quadratic()
    assert_close(layer(x), reference, rtol=1e-9, atol=1e-10)


class Wider(nn.Module):
    """A learned φ that doubles the width."""

    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, 2 * dim)

    def forward(self, x):
        return self.linear(x).exp()


@pytest.mark.parametrize("make", [lambda: lambda x: x.cosh(), lambda: Wider(4)], ids=["function", "module"])
@pytest.mark.parametrize("normalizer", ["plain", "encoded", "output"])
def test_a_users_own_map_may_be_a_function_or_a_module(make, normalizer):
    phi = make()
    layer = LinearAttention(12, 3, "type1", feature_map=phi, normalizer=normalizer).double()
    x = features(2, 6, 12)
    _, state = layer.prefill(x[:, :5], layer.initial_state(2))
    last, _ = layer.step(x[:, 5], state)
    assert_close(last, layer(x)[:, 5], rtol=1e-8, atol=1e-9)
    layer(x).square().sum().backward()
    if isinstance(phi, nn.Module):
        assert layer.encoding.head_dim == 8
        assert phi.linear.weight.grad.abs().max() > 0


def test_the_function_takes_a_map_too():
    q, k, v = (features(1, 2, 5, 4, seed=i) for i in range(3))
    named, given = (linear_attention(q, k, v, feature_map=phi)[0] for phi in ("exp", torch.exp))
    assert_close(given, named, rtol=0, atol=0)


def test_an_unknown_map_and_a_wrong_width_are_refused_in_words():
    with pytest.raises(LrpeError, match=r"no feature map named 'elu'.*'elu\+1'"):
        choose_feature_map("elu", 4)
    with pytest.raises(LrpeError, match="a name or a callable on tensors; got int"):
        choose_feature_map(3, 4)  # pyright: ignore[reportArgumentType]
    with pytest.raises(LrpeError, match=r"vectors of size 4; got \(1, 64\)"):
        LinearAttention(8, 2, "spe", feature_map="favor+")
