"""Absolute positions: sines and cosines, or learned and of a fixed length."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from lrpe import LrpeError
from lrpe.encodings import LearnedPositions, SinusoidalPositions


@given(pairs=st.integers(1, 20), s=st.lists(st.integers(-100, 1000), min_size=1, max_size=5))
def test_sinusoidal_positions_are_their_formula(pairs, s):
    width = 2 * pairs
    expected = [
        [wave(position * 10000 ** (-2 * k / width)) for k in range(pairs) for wave in (math.sin, math.cos)]
        for position in s
    ]
    assert_close(SinusoidalPositions(width)(torch.tensor(s))[0], torch.tensor(expected), rtol=0, atol=1e-4)


def test_sinusoidal_positions_come_in_the_asked_dtype_from_float64_angles():
    absolute, far = SinusoidalPositions(4), torch.tensor([10**6, 10**6 + 1])
    assert absolute(far, torch.bfloat16).dtype == torch.bfloat16
    expected = torch.tensor([math.sin(10**6), math.cos(10**6)], dtype=torch.float64)  # α_0 = 1
    assert_close(absolute(far, torch.float64)[0, 0, :2], expected, rtol=0, atol=1e-9)


def test_learned_positions_are_looked_up():
    absolute = LearnedPositions(5, 3)
    s = torch.tensor([[4, 0], [2, 2]])
    assert torch.equal(absolute(s), absolute.embedding.weight[s])
    assert absolute(torch.empty(0, dtype=torch.int64)).shape == (1, 0, 3)


@pytest.mark.parametrize(("s", "values"), [([0, 5], ["4", "0 to 5"]), ([-1, 2], ["-1 to 2"])])
def test_learned_positions_end_where_their_length_does(s, values):
    with pytest.raises(LrpeError) as error:
        LearnedPositions(5, 3)(torch.tensor(s))
    assert all(value in str(error.value) for value in values)


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (lambda: SinusoidalPositions(5), "width=5"),
        (lambda: SinusoidalPositions(0), "width=0"),
        (lambda: LearnedPositions(0, 3), "length=0"),
        (lambda: SinusoidalPositions(4)(torch.arange(3.0)), "torch.float32"),
        (lambda: LearnedPositions(4, 4)(torch.arange(3.0)), "torch.float32"),
    ],
)
def test_sizes_and_positions_that_cannot_be_are_refused(make, value):
    with pytest.raises(LrpeError) as error:
        make()
    assert value in str(error.value)
