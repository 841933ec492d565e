"""Type 2: a rotated, an identity and an alternating part; and the paper's listing as an oracle."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from lrpe import Angles, LrpeError, Orthogonal, encoding
from tests.encodings.compositions import far, features, seeds

DIVISORS = {  # the listing's θ for e rotated dimensions and n positions
    "geometric": lambda k, e, n: 10000 ** (-2 * k / e),
    "linear": lambda k, e, n: math.pi / 2 / n / (e // 2) * (k + 1),
    "harmonic": lambda k, e, n: math.pi / 2 / n / (k + 1),
}


def listing(x, e, kind):
    """x cos(sθ) + x_half sin(sθ) on the first e dimensions, in scalars; the rest of x stays."""
    n = len(x)
    rows = x.tolist()
    for s, row in enumerate(rows):
        for k in range(e // 2):
            a, b = row[2 * k], row[2 * k + 1]
            theta = s * DIVISORS[kind](k, e, n)
            row[2 * k] = a * math.cos(theta) - b * math.sin(theta)
            row[2 * k + 1] = b * math.cos(theta) + a * math.sin(theta)
    return torch.tensor(rows, dtype=x.dtype)


@pytest.mark.parametrize("kind", DIVISORS)
@given(dim=st.integers(3, 17), n=st.integers(1, 20), seed=seeds)
def test_rope_is_the_listings_reflect(kind, dim, n, seed):
    x = features(n, dim, seed=seed)
    encode = encoding("rope", dim, angles=kind, length=n)
    assert_close(encode(x), listing(x, dim - dim % 2, kind), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", DIVISORS)
@given(dim=st.integers(3, 17), n=st.integers(1, 20), seed=seeds)
def test_half_rotated_is_the_listings_mix_reflect(kind, dim, n, seed):
    half = dim // 2
    x = features(n, dim, seed=seed)
    encode = encoding("half-rotated", dim, angles=kind, length=n)
    assert_close(encode(x), listing(x, half + half % 2, kind), rtol=0, atol=1e-5)


@given(
    pairs=st.integers(0, 4), kept=st.integers(0, 3), alternating=st.integers(0, 3), seed=seeds, s=far | st.just(10**15)
)
def test_each_part_does_what_it_says(pairs, kept, alternating, seed, s):
    dim = 2 * pairs + kept + alternating
    if dim == 0:
        return
    alpha = 1e-6 * features(pairs, seed=seed)
    Lambda = Orthogonal(dim, Angles(alpha), alternating)
    y = features(1, dim, seed=seed)
    z = Lambda(y, torch.tensor([s]))[0]
    turned = torch.view_as_complex(y[0, : 2 * pairs].reshape(-1, 2).contiguous()) * torch.exp(1j * s * alpha)
    assert_close(z[: 2 * pairs], torch.view_as_real(turned).flatten(), rtol=0, atol=1e-6)
    assert_close(z[2 * pairs : 2 * pairs + kept], y[0, 2 * pairs : 2 * pairs + kept], rtol=0, atol=0)
    assert_close(z[2 * pairs + kept :], y[0, 2 * pairs + kept :] * (-1 if s % 2 else 1), rtol=0, atol=0)


def test_an_odd_dimension_keeps_its_last():
    x = features(6, 7)
    assert torch.equal(encoding("rope", 7)(x)[:, -1], x[:, -1])


def test_no_encoding_keeps_everything():
    x = features(6, 7)
    assert torch.equal(encoding("none", 7)(x), x)


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda: Orthogonal(6, Angles(torch.ones(4))), ["pairs=4", "dim=6"]),
        (lambda: Orthogonal(6, Angles(torch.ones(3)), alternating=1), ["pairs=3", "alternating=1", "dim=6"]),
        (lambda: Orthogonal(6, alternating=-2), ["alternating=-2"]),
        (lambda: Orthogonal(6, alternating=8), ["alternating=8", "dim=6"]),
        (lambda: Orthogonal(0), ["dim=0"]),
        (lambda: encoding("rope", 8, rotated=3), ["rotated must be even", "rotated=3", "head_dim=8"]),
        (lambda: encoding("rope", 8, rotated=10), ["rotated=10", "head_dim=8"]),
        (lambda: encoding("rope", 8, rotated=-2), ["rotated=-2"]),
        (lambda: encoding("rope", 8, alternating=9), ["alternating=9", "head_dim=8"]),
    ],
)
def test_parts_that_do_not_fit_are_refused(make, values):
    with pytest.raises(LrpeError) as error:
        make()
    assert all(value in str(error.value) for value in values)
