"""However the sums are taken, they are the same: numerators, Δ, states and every gradient."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import Bidirectional, Causal, Quadratic
from tests.attention.choices import CHOICES, SOME, WIDTH, Choice
from tests.attention.routes import CAUSAL, EITHER, SizeOfScores, alone, recording
from tests.encodings.compositions import features

LENGTHS = (1, 7, 12)  # packed, their borders lie inside chunks of 4


def make_texts(dtype, lengths=LENGTHS):
    return [features(1, n, WIDTH, seed=n, dtype=dtype).requires_grad_() for n in lengths]


def specification(choice, texts, causal):
    """The texts one by one through the n × n matrix, and which outputs have a Δ that is not lost in its scores."""
    layer = recording(choice.build(SizeOfScores(Quadratic(causal)), texts[0].dtype))
    expected = alone(layer, texts)
    if choice.normalizer != "encoded":
        return layer, expected, torch.ones_like(expected.out[..., :1])
    safe = expected.delta.abs() > 0.1 * torch.cat(layer.summation.sizes)
    assert safe.float().mean() > 0.3
    return layer, expected, safe.to(expected.out.dtype)


def values(result, safe):
    """All that must agree; an output counts where its Δ does."""
    result = result._replace(out=result.out * safe, y=result.y if safe.all() else result.y[:0])
    return [part for part in result if part is not None]


def gradients(layer, texts, parts):
    """Of a random sum of all that must agree, in the texts and in all that the layer learns."""
    loss = sum(
        (part * features(*part.shape, seed=i).to(part)).sum()
        for i, part in enumerate(parts)
        if part.is_floating_point()
    )
    wanted = [*texts, *layer.parameters()]
    found = torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(x) if gradient is None else gradient for x, gradient in zip(wanted, found, strict=True)]


def assert_near(found, expected, tolerance):
    for a, b in zip(found, expected, strict=True):
        size = b.abs().max().item() if b.numel() else 0.0
        assert_close(a, b, rtol=0, atol=tolerance * max(size, 1e-3) if b.is_floating_point() else 0)


def check(choice, causal, dtype, tolerance, summation, routes, lengths=LENGTHS):
    texts = make_texts(dtype, lengths)
    layer, expected, safe = specification(choice, texts, causal)
    wanted = {}
    for states in (True, False):  # a route that gives no states cannot have a gradient through them
        parts = values(expected if states else expected._replace(S=None, z=None, position=None), safe)
        wanted[states and causal] = parts, gradients(layer, texts, parts)
    layer = recording(choice.build(summation, dtype))
    for route in routes:
        result = route(layer, texts)
        parts, grads = wanted[result.S is not None]
        found = values(result, safe)
        assert_near(found, parts, tolerance)
        assert_near(gradients(layer, texts, found), grads, tolerance)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_every_way_to_the_causal_sums_agrees_with_the_specification(choice):
    check(choice, True, torch.float64, 1e-10, Causal(chunk=4), CAUSAL)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_every_way_to_the_bidirectional_sums_agrees_with_the_specification(choice):
    check(choice, False, torch.float64, 1e-10, Bidirectional(chunk=4), EITHER)


@pytest.mark.parametrize("choice", SOME, ids=str)
def test_in_float32_they_agree_to_its_digits(choice):
    check(choice, True, torch.float32, 1e-5, Causal(chunk=4), CAUSAL)
    check(choice, False, torch.float32, 1e-5, Bidirectional(chunk=4), EITHER)


@pytest.mark.parametrize("chunk", [1, 5, 12, 64])
@pytest.mark.parametrize("choice", [Choice("type2", "plain", "spread"), Choice("type1", "encoded")], ids=str)
def test_any_chunk_gives_the_same(choice, chunk):
    check(choice, True, torch.float64, 1e-10, Causal(chunk), CAUSAL)
    check(choice, False, torch.float64, 1e-10, Bidirectional(chunk), EITHER)


@pytest.mark.parametrize("choice", [Choice("type2", "plain", "spread"), Choice("type3", "output")], ids=str)
def test_lengths_around_a_chunk_give_the_same(choice):
    check(choice, True, torch.float64, 1e-10, Causal(), CAUSAL, lengths=(63, 64, 65, 130))
    check(choice, False, torch.float64, 1e-10, Bidirectional(), EITHER, lengths=(63, 64, 65, 130))
