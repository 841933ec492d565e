"""Attention knows distances alone: shifting all positions changes nothing; gaps, huge positions and grids."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import Bidirectional, Causal, LinearAttention, LrpeError, Quadratic, encoding, positions
from tests.attention.choices import CHOICES, SOME, WIDTH, Choice, D
from tests.attention.routes import recording, run
from tests.encodings.compositions import features

RELATIVE = tuple(choice for choice in CHOICES if choice.encoding != "spe")


def sums(choice, how, x, places):
    result = run(recording(choice.build(how)), x, positions=places)
    return result.numerator, result.delta, *(() if choice.normalizer == "encoded" else (result.y,))


@pytest.mark.parametrize("choice", RELATIVE, ids=str)
@pytest.mark.parametrize("causal", [True, False])
def test_shifting_all_positions_changes_nothing(choice, causal):
    how, x = Causal(3) if causal else Bidirectional(3), features(2, 7, WIDTH)
    places = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 2, 3, 10, 11, 12, 40]])
    with torch.no_grad():
        expected = sums(choice, how, x, places)
        for shift in (-13, 100_000):
            assert_close(sums(choice, how, x, places + shift), expected, rtol=1e-8, atol=1e-8)


def test_spe_says_that_it_is_relative_in_expectation_only():
    assert Choice("spe").build().encoding.relative is False
    assert all(choice.build().encoding.relative is True for choice in SOME if choice.encoding != "spe")
    x, places = features(1, 7, WIDTH), torch.arange(7)
    here, there = (sums(Choice("spe"), Causal(3), x, places + shift) for shift in (0, 100))
    assert not torch.allclose(here[0], there[0])


@pytest.mark.parametrize("choice", SOME, ids=str)
@pytest.mark.parametrize("causal", [True, False])
def test_gaps_count_as_they_are(choice, causal):
    """Rows with positions of their own, against the specification."""
    x = features(2, 7, WIDTH)
    places = torch.tensor([[5, 6, 7, 20, 21, 21, 1000], [-3, 0, 1, 2, 3, 4, 5]])
    fast, slow = (
        sums(choice, how, x, places) for how in (Causal(3) if causal else Bidirectional(3), Quadratic(causal))
    )
    assert_close(fast, slow, rtol=1e-10, atol=1e-10)
    one = sums(choice, Quadratic(causal), x[:1], places[0])
    assert_close([part.unflatten(0, (2, 7))[0] for part in slow], list(one), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("choice", SOME, ids=str)
def test_positions_of_a_billion_keep_five_digits(choice):
    x, places = features(1, 7, WIDTH), torch.arange(7)
    found = sums(choice, Causal(3), x, places + 10**9)
    assert all(part.isfinite().all() for part in found)
    if choice.encoding != "spe":
        expected = sums(choice, Causal(3), x, places)
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b, rtol=0, atol=1e-5 * max(b.abs().max().item() if b.numel() else 0, 1))


@pytest.mark.parametrize("name", ["rope", "type1", "type3"])
def test_on_a_grid_shifts_along_either_axis_change_nothing(name):
    torch.manual_seed(0)
    layer = LinearAttention(2 * D, 2, encoding(name, D, axes=2), summation="bidirectional", decay=None).double()
    x, cells = features(2, 12, 2 * D), positions.grid(3, 4)
    y = layer(x, positions=cells)
    assert_close(layer(x, positions=cells + torch.tensor([5, -9])), y, rtol=1e-9, atol=1e-10)
    assert not torch.allclose(layer(x, positions=cells.flip(-1)), y)
    layer.summation = Quadratic(causal=False)
    assert_close(layer(x, positions=cells), y, rtol=1e-9, atol=1e-10)
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[:, 9:] = False
    assert_close(
        layer(x, positions=cells, mask=mask)[:, :9], layer(x[:, :9], positions=cells[:9]), rtol=1e-9, atol=1e-10
    )


def test_a_grid_needs_positions_and_has_no_order_for_a_decay_or_a_state():
    grid, cells, x = encoding("rope", D, axes=2), positions.grid(2, 3), torch.ones(1, 6, 2 * D)
    with pytest.raises(LrpeError, match=r"encoding of 2 axes needs positions.*positions=lrpe.positions.grid"):
        LinearAttention(2 * D, 2, grid, summation="bidirectional", decay=None)(x)
    with pytest.raises(LrpeError, match=r"counts steps along a sequence.*grid of 2 axes.*decay=None"):
        LinearAttention(2 * D, 2, grid, summation="bidirectional", decay=[0.9, 0.9])
    causal = LinearAttention(2 * D, 2, grid, decay=None)
    with pytest.raises(LrpeError, match=r"A state counts steps along a sequence.*grid of 2 axes.*Use forward"):
        causal.prefill(x, positions=cells)
