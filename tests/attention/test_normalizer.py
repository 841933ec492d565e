"""What each normaliser divides by, what it bounds and what it cannot."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd import gradcheck
from torch.testing import assert_close

from lrpe import Causal, EncodedDelta, LinearAttention, LrpeError, Normalizer, OutputNorm, PlainDelta, encoding
from lrpe.attention.normalizer import NORMALIZERS, choose_normalizer
from tests.attention.choices import WIDTH, Choice
from tests.attention.routes import recording, run
from tests.encodings.compositions import features, seeds


@pytest.mark.parametrize("make", [EncodedDelta, PlainDelta])
def test_a_delta_divides_and_never_by_less_than_its_floor(make):
    numerator = torch.tensor([6.0, 6.0, 6.0, 6.0, 0.0])[:, None]
    delta = torch.tensor([2.0, -3.0, 1e-4, -1e-4, 0.0])[:, None]
    expected = torch.tensor([3.0, -2.0, 600.0, -600.0, 0.0])[:, None]
    assert_close(make(floor=0.01)(numerator, delta), expected)


@pytest.mark.parametrize("make", [EncodedDelta, PlainDelta])
def test_a_delta_of_0_gives_0_with_no_gradient(make):
    numerator, delta = torch.ones(1, 3, requires_grad=True), torch.zeros(1, 1, requires_grad=True)
    out = make()(numerator, delta)
    gradients = torch.autograd.grad(out.sum(), (numerator, delta))
    assert (out == 0).all()
    assert all((gradient == 0).all() for gradient in gradients)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_quotient_has_the_gradient_of_finite_differences_on_either_side_of_the_floor(sign):
    numerator = features(4, 2).requires_grad_()
    delta = (sign * torch.tensor([[0.5], [0.02], [0.005], [3.0]], dtype=torch.float64)).requires_grad_()
    assert gradcheck(EncodedDelta(floor=0.01), (numerator, delta))


@given(seed=seeds, offset=st.integers(0, 1000))
def test_under_the_encoded_delta_constant_values_come_out_as_they_are(seed, offset):
    """The weights of each query sum to 1, wherever they may lie."""
    layer = recording(Choice("type2", "encoded", "spread").build(Causal(3)))
    nn.init.zeros_(layer.v_proj.weight)
    result = run(layer, features(1, 7, WIDTH, seed=seed), positions=torch.arange(offset, offset + 7))
    value = layer.v_proj.bias.unflatten(0, (2, 5)).repeat_interleave(2, 0)
    kept = (result.delta.abs() > 1e-3).expand_as(result.out)
    assert_close(result.out[kept], value.expand_as(result.out)[kept], rtol=1e-7, atol=1e-8)


@given(seed=seeds)
def test_under_the_plain_delta_no_output_exceeds_the_largest_value(seed):
    """cos(α(t-s)) only shrinks a score, so |Σ w v| ≤ Δ max|v|."""
    torch.manual_seed(seed)
    layer = recording(LinearAttention(8, 2, encoding("cosformer", 4, length=4), normalizer="plain").double())
    x = features(1, 9, 8, seed=seed)
    result = run(layer, x)
    largest = layer.v_proj(x).abs().amax((0, 1)).view(2, 4)
    assert (result.out.abs() <= largest + 1e-12).all()


@pytest.mark.parametrize("over", ["joined", "head"])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_an_output_norm_is_torchs_over_the_joined_heads_or_each(kind, over):
    norm, x = OutputNorm(3, 4, kind, over).double(), features(2, 3, 5, 4)
    with torch.no_grad():
        for i, parameter in enumerate(norm.parameters()):
            parameter.copy_(features(*parameter.shape, seed=i))
    weight, bias = norm.norm.weight, getattr(norm.norm, "bias", None)
    rows = x if over == "head" else x.transpose(1, 2).flatten(2)
    centred = rows - rows.mean(-1, keepdim=True) if kind == "layer" else rows
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + (
        0 if bias is None else bias
    )
    if over == "joined":
        expected = expected.unflatten(2, (3, 4)).transpose(1, 2)
    assert_close(norm(x, x[..., :0]), expected)


@pytest.mark.parametrize("name", NORMALIZERS)
def test_every_name_makes_what_it_says(name):
    made = choose_normalizer(name, 2, 3)
    assert made.delta == {"plain": "plain", "encoded": "encoded"}.get(name, "none")
    if isinstance(made, OutputNorm):
        assert isinstance(made.norm, nn.RMSNorm if "rms" in name else nn.LayerNorm)
        assert made.norm.normalized_shape == ((3,) if name.endswith("head") else (6,))


class Halved(Normalizer):
    """A user's own: half the plain quotient."""

    delta = "plain"

    def forward(self, numerator, delta):
        return numerator / delta / 2


def test_a_users_own_normalizer_serves():
    torch.manual_seed(0)
    layer, x = LinearAttention(8, 2, "type2", normalizer=Halved(), bias=False).double(), features(1, 5, 8)
    halved = layer(x)
    layer.normalizer = PlainDelta()
    assert_close(2 * halved, layer(x))


def test_an_unknown_normalizer_is_refused_in_words():
    with pytest.raises(LrpeError, match=r"no normaliser named 'plane'.*'plain'"):
        choose_normalizer("plane", 2, 3)
    with pytest.raises(LrpeError, match="a name or a Normalizer; got int"):
        choose_normalizer(3, 2, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(LrpeError, match="no norm named 'group'"):
        OutputNorm(2, 3, "group")  # pyright: ignore[reportArgumentType]
    with pytest.raises(LrpeError, match="got 'all'"):
        OutputNorm(2, 3, over="all")  # pyright: ignore[reportArgumentType]
