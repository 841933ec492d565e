"""A query that sees no key gives 0 and no gradient, whatever normalises it; positions and masks of other makers."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import Bidirectional, Causal, LinearAttention, Quadratic, SoftmaxAttention, linear_attention
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


@pytest.mark.parametrize("packing", ["cu_seqlens", "sequences"])
@pytest.mark.parametrize("decay", ["none", "explicit"])
def test_padding_counts_no_position_inside_a_packed_sequence_either(packing, decay):
    """Padding before, between and after real tokens: each sequence is as if it stood alone and without its padding."""
    layer, x = Choice("type2", "plain", decay).build(Causal(3)), features(1, 12, WIDTH)
    mask = torch.ones(1, 12, dtype=torch.bool)
    mask[0, [2, 5, 6, 9, 11]] = False
    told = {"cu_seqlens": torch.tensor([0, 6, 6, 12])}
    told = told if packing == "cu_seqlens" else {"sequences": torch.tensor([3] * 6 + [1] * 6)}
    y = layer(x, mask=mask, **told)
    kept = [[0, 1, 3, 4], [7, 8, 10]]
    for real in kept:
        assert_close(y[:, real], layer(x[:, real]), rtol=1e-10, atol=1e-10)
    alone = layer(x[:, :6], mask=mask[:, :6])  # nor elsewhere
    assert_close(alone[:, kept[0]], y[:, kept[0]], rtol=1e-10, atol=1e-10)


def test_padding_at_the_end_of_a_packed_sequence_leaves_its_state_where_the_last_real_token_stood():
    layer, x = Choice("type2", "plain", "explicit").build(Causal(3)), features(1, 12, WIDTH)
    mask = torch.ones(1, 12, dtype=torch.bool)
    mask[0, [5, 6, 11]] = False
    _, states = layer.prefill(x, mask=mask, cu_seqlens=torch.tensor([0, 6, 6, 12]))
    for row, real in ((0, slice(0, 5)), (2, slice(7, 11))):
        _, state = layer.prefill(x[:, real])
        assert_close(states.select(torch.tensor([row])), state, rtol=1e-10, atol=1e-10)
    assert states.position.tolist() == [5, 0, 4]
    assert (states.S[1] == 0).all()


def test_padding_of_packed_sequences_may_have_any_position():
    layer, x = Choice("type2", "plain", "explicit").build(Causal(3)), features(1, 9, WIDTH)
    mask = torch.tensor([[1, 1, 1, 0, 0, 1, 1, 0, 0]]).bool()
    places = torch.tensor([4, 5, 9, 1, 99, -3, -2, 1, 77])
    _, states = layer.prefill(x, mask=mask, positions=places, cu_seqlens=torch.tensor([0, 5, 8, 9]))
    for row, real in ((0, slice(0, 3)), (1, slice(5, 7))):
        _, state = layer.prefill(x[:, real], positions=places[real])
        assert_close(states.select(torch.tensor([row])), state, rtol=1e-10, atol=1e-10)
    assert states.position.tolist() == [10, -1, 0]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.int32])
def test_a_mask_of_zeros_and_ones_is_one_of_booleans(dtype):
    layer, x = Choice("rope").build(), features(3, 6, WIDTH)
    assert_close(layer(x, mask=HUGGING_FACE.to(dtype)), layer(x, mask=HUGGING_FACE.bool()), rtol=0, atol=0)


WORST = (float("nan"), float("inf"), -float("inf"), 1e38)
SUMS = [Causal(2), Bidirectional(2), Quadratic(), Quadratic(causal=False)]


@pytest.mark.parametrize("worst", WORST, ids=str)
@pytest.mark.parametrize("decay", [None, [0.9, 0.5]])
@pytest.mark.parametrize("how", SUMS, ids=str)
def test_whatever_stands_at_padding_does_not_enter_the_sums_nor_their_gradients(how, decay, worst):
    """Each of q, k and v; for a context its keys and values."""
    mask = torch.tensor([[True, False, True, True, False], [True] * 5])
    clean = [features(2, 2, 5, 4, seed=i) for i in range(3)]
    spoilt = [x.masked_fill(~mask[:, None, :, None], worst).requires_grad_() for x in clean]
    clean = [x.requires_grad_() for x in clean]
    told = {"mask": mask}
    if decay is None and not how.causal:
        told = {"mask": mask, "attention": "cross", "context_mask": mask}
    results = []
    for qkv in (clean, spoilt):
        out, _ = linear_attention(*qkv, "type2", summation=how, decay=decay, **told)
        real = out.transpose(1, 2)[mask]
        results.append((real, *torch.autograd.grad(real.square().sum(), qkv)))
    assert_close(results[1], results[0], rtol=1e-10, atol=1e-10)
    assert all((gradient.transpose(1, 2)[~mask] == 0).all() for gradient in results[1][1:])


@pytest.mark.parametrize("worst", WORST[:2], ids=str)
@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
def test_nor_does_it_enter_a_layer_its_state_or_its_weights(summation, kind, worst):
    layer, x = kind(WIDTH, 2, summation=summation).double(), features(2, 5, WIDTH)
    mask = torch.tensor([[False, True, True, False, True], [True] * 5])
    spoilt = x.masked_fill(~mask[..., None], worst)
    y, expected = layer(spoilt, mask=mask), layer(x, mask=mask)
    assert_close(y[mask], expected[mask], rtol=1e-10, atol=1e-10)
    gradients = torch.autograd.grad(y[mask].square().sum(), list(layer.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)
    if summation == "causal":
        _, state = layer.prefill(spoilt[:, :4], mask=mask[:, :4])
        last, _ = layer.step(x[:, 4], state)
        assert_close(last, expected[:, 4], rtol=1e-9, atol=1e-10)
