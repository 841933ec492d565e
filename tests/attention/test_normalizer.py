"""What each normaliser divides by, what it bounds and what it cannot."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd import gradcheck
from torch.testing import assert_close

from lrpe import (
    Bidirectional,
    Causal,
    EncodedDelta,
    LinearAttention,
    LrpeError,
    OutputNorm,
    PlainDelta,
    Quadratic,
    encoding,
    linear_attention,
)
from lrpe.attention import ClampedDelta, Normalizer
from lrpe.attention.feature_map import choose_feature_map
from lrpe.attention.normalizer import NORMALIZERS, Features, choose_normalizer
from tests.attention.choices import WIDTH, Choice
from tests.attention.routes import recording, run
from tests.encodings.compositions import features, seeds


@pytest.mark.parametrize("make", [EncodedDelta, PlainDelta])
def test_a_delta_divides_with_its_sign_however_small_it_is(make):
    numerator = torch.tensor([6.0, 6.0, 6e-30, 6e-30, 0.0])[:, None]
    delta = torch.tensor([2.0, -3.0, 2e-30, -3e-30, 0.0])[:, None]
    expected = torch.tensor([3.0, -2.0, 3.0, -2.0, 0.0])[:, None]
    assert_close(make()(numerator, delta), expected)


def test_what_has_no_finite_inverse_gives_finite_numbers_and_no_gradient():
    numerator, delta = torch.full((1, 2), 1e-39, requires_grad=True), torch.full((1, 1), 1e-39, requires_grad=True)
    out = PlainDelta()(numerator, delta)
    assert out.isfinite().all()
    assert torch.autograd.grad(out.sum(), delta)[0].item() == 0


def test_the_clamped_delta_takes_1e6th_for_all_that_is_less_as_the_authors_did():
    numerator, delta = torch.tensor([6.0, 6.0, 6.0])[:, None], torch.tensor([2.0, -3.0, 1e-9])[:, None]
    assert_close(ClampedDelta()(numerator, delta), torch.tensor([3.0, 6e6, 6e6])[:, None])
    assert_close(ClampedDelta(least=4.0)(numerator, delta), torch.tensor([1.5, 1.5, 1.5])[:, None])


@pytest.mark.parametrize("make", [EncodedDelta, PlainDelta])
def test_a_delta_of_0_gives_0_with_no_gradient(make):
    numerator, delta = torch.ones(1, 3, requires_grad=True), torch.zeros(1, 1, requires_grad=True)
    out = make()(numerator, delta)
    gradients = torch.autograd.grad(out.sum(), (numerator, delta))
    assert (out == 0).all()
    assert all((gradient == 0).all() for gradient in gradients)


@pytest.mark.parametrize("make", [EncodedDelta, ClampedDelta, PlainDelta])
def test_the_quotient_has_the_gradient_of_finite_differences(make):
    numerator = features(4, 2).requires_grad_()
    delta = torch.tensor([[0.5], [0.02], [-0.7], [3.0]], dtype=torch.float64).requires_grad_()
    assert gradcheck(make(), (numerator, delta))


@pytest.mark.parametrize("normalizer", ["plain", "encoded"])
@pytest.mark.parametrize("how", [Causal(4), Bidirectional(4), Quadratic()], ids=lambda how: type(how).__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_scale_of_the_features_cancels_out(dtype, how, normalizer):
    """φ and 10⁻⁸ φ give one output, and one gradient of the values: Δ has no floor of its own scale."""
    q, k, v = (features(1, 2, 9, 4, seed=i, dtype=dtype).requires_grad_() for i in range(3))

    def results(scale):
        phi = lambda x: scale * torch.nn.functional.softplus(x)  # noqa: E731
        out, _ = linear_attention(q, k, v, "rope", phi, normalizer, summation=how, decay=[0.9, 0.5])
        return out, *torch.autograd.grad(out.square().sum(), (q, k, v))

    tolerance = 1e-3 if dtype == torch.float32 else 1e-9
    for scale in (1e-8, 1e8):
        assert_close(results(scale), results(1.0), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_small_random_features_divide_as_the_formula_does(dtype):
    """φ(q)·φ(k) is about e⁻⁷⁰ here. By the full pass and step by step, against the n × n quotient in float64."""
    q, k, v = ((2.5 * features(1, 1, 40, 128, seed=i)).to(dtype) for i in range(3))
    options = {"encoding": "none", "decay": None, "feature_map": "favor+"}
    out, _ = linear_attention(q, k, v, **options)
    phi = choose_feature_map("favor+", 128)
    assert isinstance(phi, torch.nn.Module)
    scores = (phi(q.double()) @ phi(k.double()).mT).tril()
    expected = scores @ v.double() / scores.sum(-1, keepdim=True)
    assert expected.abs().mean() > 0.5
    assert_close(out.double(), expected, rtol=0, atol=0.02 if dtype == torch.float16 else 1e-4)
    _, state = linear_attention(q[:, :, :39], k[:, :, :39], v[:, :, :39], **options)
    last, _ = linear_attention(q[:, :, 39:], k[:, :, 39:], v[:, :, 39:], **options, state=state)
    assert_close(last.double(), expected[:, :, 39:], rtol=0, atol=0.02 if dtype == torch.float16 else 1e-4)


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
    layer = recording(
        LinearAttention(8, 2, encoding("cosformer", 4, length=4), normalizer="plain", decay=None).double()
    )
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
    assert_close(norm(x, None), expected)


@pytest.mark.parametrize("name", NORMALIZERS)
def test_every_name_makes_what_it_says(name):
    made = choose_normalizer(name, 2, 3)
    plain, encoded = torch.zeros(1), torch.zeros(1)
    summed = made.delta_features(Features(lambda: plain, lambda _: encoded))
    assert summed is {"plain": plain, "encoded": encoded, "clamped": encoded}.get(name)
    assert isinstance(made, ClampedDelta) == (name == "clamped")
    if isinstance(made, OutputNorm):
        assert isinstance(made.norm, nn.RMSNorm if "rms" in name else nn.LayerNorm)
        assert made.norm.normalized_shape == ((3,) if name.endswith("head") else (6,))


class Halved(Normalizer):
    """A user's own: half the plain quotient."""

    def delta_features(self, features):
        return features.plain

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
    with pytest.raises(LrpeError, match="got over='all'"):
        OutputNorm(2, 3, over="all")  # pyright: ignore[reportArgumentType]
