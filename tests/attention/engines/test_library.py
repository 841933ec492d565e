"""The native engine's table of rotations, against cosines and sines in float64."""

import pytest
import torch
from torch.testing import assert_close

import lrpe
from lrpe.attention.engines.library import make_turns

pytestmark = pytest.mark.skipif(lrpe.engines.status()["native"] != "ready", reason="the native engine is not built")
PAIRS, N = 9, 21


@pytest.mark.parametrize("pairs", [1, PAIRS], ids=["one phase", "a phase per pair"])
@pytest.mark.parametrize("largest", [1.0, 1e3, 1e7, 1e8, 1e9, 1e15, 1e17, 1e300], ids="{:g}".format)
def test_turns_are_exact_for_small_and_large_angles(largest, pairs):
    phase = (torch.rand(2, 1, N, pairs, dtype=torch.float64) - 0.5) * 2 * largest
    alpha = torch.rand(3, 1, PAIRS, dtype=torch.float64)
    table = make_turns(phase, alpha, 2 * PAIRS + 1)
    angle = phase * alpha
    expected = torch.stack([angle.cos(), angle.sin()], -1).flatten(-2)
    assert_close(table[..., : 2 * PAIRS].double(), expected, rtol=0, atol=1e-7)
    assert table[..., 2 * PAIRS].eq(1).all()  # the feature that stays


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_phase_without_a_cosine_is_nan_in_its_own_row_alone(value):
    phase = torch.zeros(1, 1, 3, 1, dtype=torch.float64)
    phase[0, 0, 1] = value
    table = make_turns(phase, torch.ones(1, 1, 2, dtype=torch.float64), 4)[0, 0, :, :4]
    assert table[1].isnan().all()
    assert table[[0, 2]].equal(torch.tensor([1.0, 0.0, 1.0, 0.0]).expand(2, 4))
