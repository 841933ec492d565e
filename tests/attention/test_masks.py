"""A query that sees no key gives 0 and no gradient, whatever normalises it; positions and masks of other makers."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import Bidirectional, Causal
from tests.attention.choices import NORMALIZERS, SOME, WIDTH, Choice
from tests.encodings.compositions import features

EVERY_NORMALIZER = (*NORMALIZERS, "output-rms-head")
HUGGING_FACE = torch.tensor([[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]])


@pytest.mark.parametrize("feature_map", ["elu+1", "relu", "silu"])
@pytest.mark.parametrize("decay", ["none", "explicit"])
@pytest.mark.parametrize("normalizer", EVERY_NORMALIZER)
@pytest.mark.parametrize("causal", [True, False])
def test_a_query_that_sees_no_key_gives_nothing_and_gets_no_gradient(causal, normalizer, decay, feature_map):
    layer = Choice("type2", normalizer, decay).build(Causal(2) if causal else Bidirectional(2), feature_map=feature_map)
    x, mask = features(2, 5, WIDTH).requires_grad_(), torch.zeros(2, 5, dtype=torch.bool)
    mask[1, 3:] = causal  # in the causal row the first three tokens see nothing; a row without any key comes always
    blind = torch.ones(2, 5, dtype=torch.bool) if not causal else mask.logical_not()
    y = layer(x, mask=mask)
    assert_close(y[blind], layer.o_proj.bias.expand_as(y[blind]), rtol=0, atol=0)
    gradients = torch.autograd.grad((y[blind] * features(*y[blind].shape)).sum(), [x, *layer.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[0] == 0).all()


@pytest.mark.parametrize("normalizer", EVERY_NORMALIZER)
def test_a_step_of_a_masked_row_before_any_token_gives_nothing(normalizer):
    layer = Choice("type1", normalizer, "spread").build()
    y, state = layer.step(features(2, WIDTH), layer.initial_state(2), mask=torch.tensor([True, False]))
    assert_close(y[1], layer.o_proj.bias, rtol=0, atol=0)
    assert y.isfinite().all()
    assert state.position.tolist() == [1, 0]


@pytest.mark.parametrize("choice", SOME, ids=str)
@pytest.mark.parametrize("causal", [True, False])
def test_positions_as_hugging_face_counts_them_are_those_we_count(choice, causal):
    """Left padding stands at position 1 there, which is after the position of the first token."""
    layer = choice.build(Causal(2) if causal else Bidirectional(2))
    x, mask = features(3, 6, WIDTH), HUGGING_FACE
    theirs = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)
    found, expected = (layer(x, mask=mask, positions=p) for p in (theirs, None))
    assert_close(found[mask.bool()], expected[mask.bool()], rtol=1e-10, atol=1e-10)
    if causal:
        states = [layer.prefill(x, mask=mask, positions=p)[1] for p in (theirs, None)]
        assert_close(states[0], states[1], rtol=1e-10, atol=1e-10)
        assert states[0].position.tolist() == [3, 6, 5]


def test_a_second_pass_with_padding_in_front_goes_on_where_the_first_ended():
    layer, x = Choice("type2", "plain", "spread").build(Causal(2)), features(2, 8, WIDTH)
    whole = layer(x[:1])
    _, state = layer.prefill(x[:, :5])
    late = torch.cat([x[:, :2], x[:, 5:]], 1)  # two tokens of padding, then the rest
    mask = torch.tensor([[False, False, True, True, True]]).expand(2, 5)
    for given in (None, torch.tensor([[1, 1, 5, 6, 7]])):
        y, after = layer.prefill(late, state, mask=mask, positions=given)
        assert_close(y[:1, 2:], whole[:, 5:], rtol=1e-10, atol=1e-10)
        assert after.position.tolist() == [8, 8]


def test_padding_inside_a_packed_sequence_is_skipped_and_the_next_sequence_decays_by_its_own_clock():
    layer, x = Choice("type2", "plain", "explicit").build(Causal(3)), features(1, 12, WIDTH)
    mask = torch.ones(1, 12, dtype=torch.bool)
    mask[0, 5] = mask[0, 6] = mask[0, 11] = False
    y, states = layer.prefill(x, mask=mask, cu_seqlens=torch.tensor([0, 6, 6, 12]))
    first, _ = layer.prefill(x[:, :5])
    second, state = layer.prefill(x[:, 7:11], positions=torch.arange(1, 5))
    assert_close(y[:, :5], first, rtol=1e-10, atol=1e-10)
    assert_close(y[:, 7:11], second, rtol=1e-10, atol=1e-10)
    assert_close((states.S[2:], states.z[2:]), (state.S, state.z), rtol=1e-10, atol=1e-10)
    assert states.position.tolist() == [5, 0, 5]
    assert (states.S[1] == 0).all()


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.int32])
def test_a_mask_of_zeros_and_ones_is_one_of_booleans(dtype):
    layer, x = Choice("rope").build(), features(3, 6, WIDTH)
    assert_close(layer(x, mask=HUGGING_FACE.to(dtype)), layer(x, mask=HUGGING_FACE.bool()), rtol=0, atol=0)
