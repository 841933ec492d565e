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


@pytest.mark.parametrize("decay", [None, "spread"])
@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
def test_the_gradient_of_angles_has_as_many_digits_far_from_position_0(summation, decay):
    q, k, v, weights = torch.randn(4, 1, 2, 65, 16, generator=torch.Generator().manual_seed(0)).unbind(0)

    def gradient(start, dtype):
        encoding = lrpe.encoding("type2", 16, heads=2, seed=0)
        out, _ = lrpe.linear_attention(
            *(x.to(dtype) for x in (q, k, v)),
            encoding,
            positions=torch.arange(start, start + 65),
            summation=summation,
            decay=decay,
        )
        return torch.autograd.grad((out * weights.to(dtype)).sum(), encoding.matrix.angles.log_alpha)[0].double()

    exact = gradient(0, torch.float64)
    assert (gradient(10**6, torch.float32) - exact).abs().max() < 1e-5 * exact.abs().max()


@pytest.mark.parametrize("per_pair", [False, True], ids=["one phase", "a phase per pair"])
def test_angles_between_two_states_have_the_gradient_of_the_whole_text(per_pair):
    """A state does not turn along when all tokens do, so phases then count from 0."""
    q, k, v = torch.randn(3, 1, 2, 70, 16, generator=torch.Generator().manual_seed(0)).unbind(0)
    steps = torch.rand((1, 2, 70, 8) if per_pair else (1, 2, 70), generator=torch.Generator().manual_seed(1))

    def gradient(*cuts):
        encoding, state, outs = lrpe.encoding("type2", 16, heads=2, seed=0), None, []
        for part in map(slice, cuts[:-1], cuts[1:]):
            given = {"encoding": encoding, "steps": steps[:, :, part], "state": state}
            out, state = lrpe.linear_attention(q[:, :, part], k[:, :, part], v[:, :, part], **given)
            outs.append(out)
        return torch.autograd.grad(torch.cat(outs, 2).square().sum(), encoding.matrix.angles.log_alpha)[0]

    assert_close(gradient(0, 20, 55, 70), gradient(0, 70), rtol=1e-4, atol=1e-4)
