"""Type 1: Λ^(s) = diag(e^{isα})."""

import pytest
import torch
from hypothesis import given
from torch.testing import assert_close

from lrpe import Angles, LrpeError, Unitary
from tests.encodings.compositions import dims, far, features, seeds


@given(dim=dims, seed=seeds, s=far)
def test_the_features_are_the_real_and_imaginary_parts(dim, seed, s):
    alpha, y = features(dim, seed=seed), features(1, dim, seed=seed + 1)
    encoded = Unitary(dim, Angles(alpha))(y, torch.tensor([s]))
    expected = y * torch.exp(1j * s * alpha)
    assert_close(encoded, torch.cat([expected.real, expected.imag], -1), rtol=0, atol=1e-9)


@given(dim=dims, seed=seeds, s=far)
def test_complex_rows_are_multiplied_as_complex_numbers(dim, seed, s):
    alpha = features(dim, seed=seed)
    y = torch.complex(features(1, dim, seed=seed + 1), features(1, dim, seed=seed + 2))
    encoded = Unitary(dim, Angles(alpha))(torch.cat([y.real, y.imag], -1), torch.tensor([s]))
    expected = y * torch.exp(1j * s * alpha)
    assert_close(encoded, torch.cat([expected.real, expected.imag], -1), rtol=0, atol=1e-9)


@given(dim=dims, seed=seeds, s=far, t=far)
def test_the_score_is_a_sum_of_cosines(dim, seed, s, t):
    Lambda = Unitary(dim).double()
    q, k = features(1, dim, seed=seed), features(1, dim, seed=seed + 1)
    alpha = Lambda.angles.alpha
    score = (Lambda(q, torch.tensor([s])) * Lambda(k, torch.tensor([t]))).sum()
    assert_close(score, (q * k * torch.cos((t - s) * alpha)).sum(), rtol=0, atol=1e-8)


def test_another_number_of_angles_is_refused():
    with pytest.raises(LrpeError, match="one α per dimension, dim=4; got 3"):
        Unitary(4, Angles(torch.ones(3)))
