"""One state of one shape for life: what it holds, how rows of it are chosen, and where the next token stands."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from lrpe import Causal, LinearAttention, Normalizer, YaRN, encoding, linear_attention
from tests.attention.choices import CHOICES, KEY_HEADS, SOME, WIDTH, Choice
from tests.encodings.compositions import features, seeds


def shapes(state):
    return [None if tensor is None else (tuple(tensor.shape), tensor.dtype) for tensor in state]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_a_state_has_one_shape_for_life(choice):
    layer, x = choice.build(Causal(2), torch.float32), features(3, 6, WIDTH, dtype=torch.float32)
    with torch.no_grad():
        empty = layer.initial_state(3)
        _, after = layer.prefill(x, empty)
        _, later = layer.step(x[:, 0], after)
    _, packed = layer.prefill(x[:1], cu_seqlens=torch.tensor([0, 1, 1, 6]))
    assert shapes(empty) == shapes(after) == shapes(later) == shapes(packed)
    assert [tensor.dtype for tensor in empty[:3]] == [torch.float32, torch.float32, torch.int64]
    assert empty.z.shape[-1] == {"plain": 6, "encoded": empty.S.shape[2]}.get(choice.normalizer, 0)
    assert all((tensor == 0).all() for tensor in empty[:3])


@settings(max_examples=10)
@given(cuts=st.lists(st.integers(0, 20), max_size=4), chunk=st.integers(1, 8), seed=seeds)
def test_a_text_may_be_cut_anywhere(cuts, chunk, seed):
    layer, x = Choice("type2", "plain", "spread").build(Causal(chunk)), features(2, 20, WIDTH, seed=seed)
    with torch.no_grad():
        whole, expected = layer.prefill(x)
        state, ys = layer.initial_state(2), []
        for piece in x.tensor_split(sorted(cuts), 1):
            y, state = layer.prefill(piece, state)
            ys.append(y)
    assert_close(torch.cat(ys, 1), whole, rtol=1e-10, atol=1e-10)
    assert_close(state, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("choice", SOME, ids=str)
def test_rows_of_a_state_are_the_states_of_those_rows(choice):
    layer, x = choice.build(Causal(2)), features(3, 6, WIDTH)
    _, state = layer.prefill(x[:, :5])
    rows = torch.tensor([2, 0, 2])
    y, after = layer.step(x[rows, 5], state.select(rows))
    expected, expected_after = layer.step(x[:, 5], state)
    assert_close(y, expected[rows], rtol=1e-12, atol=1e-12)
    assert_close(after, expected_after.select(rows), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("choice", SOME, ids=str)
def test_a_finished_row_stays_as_it_is_while_others_go_on(choice):
    layer, x = choice.build(Causal(2)), features(2, 9, WIDTH)
    _, before = layer.prefill(x[:, :5])
    state = before
    for t in range(5, 8):
        _, state = layer.step(x[:, t], state, mask=torch.tensor([True, False]))
    kept, went = (state.select(torch.tensor([i])) for i in (1, 0))
    assert_close(kept, before.select(torch.tensor([1])), rtol=0, atol=0)
    assert_close(went, layer.prefill(x[:1, :8])[1], rtol=1e-10, atol=1e-10)
    y, _ = layer.step(x[:, 8], state)  # and a row that wakes up goes on from its own last token
    expected = layer(torch.cat([x[1:, :5], x[1:, 8:]], 1))[:, -1]
    assert_close(y[1:], expected, rtol=1e-9, atol=1e-10)


def test_the_next_position_is_one_past_the_last_real_token():
    layer, x = Choice("rope", "plain", "spread").build(), features(2, 4, WIDTH)
    mask = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]])
    assert layer.prefill(x)[1].position.tolist() == [4, 4]
    assert layer.prefill(x, mask=mask)[1].position.tolist() == [2, 0]
    assert layer.prefill(x, positions=torch.tensor([3, 5, 8, 20]))[1].position.tolist() == [21, 21]
    assert layer.prefill(x, positions=torch.arange(-9, -5))[1].position.tolist() == [-5, -5]
    _, state = layer.prefill(x)
    assert layer.prefill(x, state, mask=mask)[1].position.tolist() == [6, 4]
    q = features(1, KEY_HEADS, 4, 3)
    _, state = linear_attention(q, q, q, sequences=torch.tensor([7, 7, 7, 1]))
    assert state.position.tolist() == [1]


@pytest.mark.parametrize("offset", [-100, 0, 10**6])
def test_steps_go_on_from_wherever_the_first_pass_stood(offset):
    layer, x = Choice("type2", "plain", "explicit").build(), features(1, 6, WIDTH)
    _, state = layer.prefill(x[:, :4], positions=torch.arange(offset, offset + 4))
    for t in (4, 5):
        y, state = layer.step(x[:, t], state)
    assert_close(y, layer(x)[:, 5], rtol=1e-8, atol=1e-9)


class Sums(Normalizer):
    """The sums as they are; in a quotient a scale of the scores would cancel."""

    def delta_features(self, features):
        return None

    def forward(self, numerator, delta):
        return numerator


def test_a_scale_of_the_scores_counts_in_steps_and_in_passes():
    scaled, x = encoding("rope", 4, scaling=YaRN(8.0, 64)), features(1, 5, 8)
    layer = LinearAttention(8, 2, scaled, normalizer=Sums(), bias=False).double()
    whole = layer(x)
    _, state = layer.prefill(x[:, :4])
    assert_close(layer.step(x[:, 4], state)[0], whole[:, 4], rtol=1e-10, atol=1e-11)
    q, k, v = layer.project(x[:, :1], x[:, :1])
    score = YaRN(8.0, 64).score_scale * (layer.phi(q) * layer.phi(k)).sum(-1, keepdim=True)  # on the spot nothing turns
    assert_close(layer.join(score * v, x[:, :1]), whole[:, :1], rtol=1e-10, atol=1e-11)


def test_a_pass_after_a_gap_fades_the_state_by_the_gap():
    layer, x = Choice("rope", "plain", "explicit").build(Causal(2)), features(1, 7, WIDTH)
    places = torch.tensor([0, 1, 2, 10, 11, 30, 31])
    whole = layer(x, positions=places)
    _, state = layer.prefill(x[:, :3], positions=places[:3])
    y, state = layer.prefill(x[:, 3:5], state, positions=places[3:5])
    one, state = layer.prefill(x[:, 5:6], state, positions=places[5:6])  # a single token takes the step's way
    last, _ = layer.step(x[:, 6], state)
    assert_close(torch.cat([y, one, last[:, None]], 1), whole[:, 3:], rtol=1e-10, atol=1e-10)


def test_packed_sequences_leave_a_state_each_from_which_each_goes_on():
    layer, x = Choice("type1", "plain", "spread").build(Causal(4)), features(1, 11, WIDTH)
    _, states = layer.prefill(x[:, :9], cu_seqlens=torch.tensor([0, 2, 9]))
    y, _ = layer.step(x[0, 9:], states)
    for row, (first, last) in enumerate(((0, 2), (2, 9))):
        alone = torch.cat([x[:, first:last], x[:, 9 + row : 10 + row]], 1)
        assert_close(y[row], layer(alone)[0, -1], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("offset", [-9, -4, 0, 7])
@pytest.mark.parametrize("n", [1, 3])
def test_padding_alone_leaves_a_state_as_it_is_wherever_it_stands(n, offset):
    layer, x = Choice("type2", "plain", "explicit").build(Causal(2)), features(2, 5, WIDTH)
    _, state = layer.prefill(x[:, :4], positions=torch.arange(offset, offset + 4))
    mask = torch.zeros(2, n, dtype=torch.bool)
    mask[1] = True
    y, after = layer.prefill(x[:, :n], state, mask=mask)
    assert_close([tensor[0] for tensor in after[:3]], [tensor[0] for tensor in state[:3]], rtol=0, atol=0)
    expected, other = layer.prefill(x[1:, :n], state.select(torch.tensor([1])))
    assert_close(y[1:], expected, rtol=1e-10, atol=1e-10)
    assert_close([tensor[1:] for tensor in after[:3]], list(other[:3]), rtol=1e-10, atol=1e-10)
