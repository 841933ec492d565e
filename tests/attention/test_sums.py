"""The causal and the bidirectional sum against the specification: any length, chunk, grouping, frame and start."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from lrpe import Bidirectional, Causal, Quadratic
from tests.attention.frames import Frame, Start, solve
from tests.encodings.compositions import features, seeds

decays = st.sampled_from([None, (1.0, 1.0), (0.9, 0.99), (1e-3, 0.5)])


def draw_frame(n, decay, steps, borders, seed, batch=2):
    """A frame with gaps between positions and borders between sequences."""
    generator = torch.Generator().manual_seed(seed)
    positions = torch.randint(0, steps + 1, (batch, n), generator=generator).cumsum(-1) - 50 if steps else None
    sequences = (torch.rand(batch, n, generator=generator) < 0.3).long().cumsum(-1) if borders else None
    return Frame(None if decay is None else torch.tensor(decay, dtype=torch.float64), positions, sequences)


def draw(n, group, seed, dtype=torch.float64):
    sizes = ((2, 2 * group, n, 4), (2, 2, n, 4), (2, 2, n, 3))
    return [features(*size, seed=seed + i, dtype=dtype) for i, size in enumerate(sizes)]


@given(
    n=st.sampled_from([1, 2, 3, 5, 8, 13, 17]),
    chunk=st.integers(1, 20),
    group=st.integers(1, 3),
    decay=decays,
    steps=st.sampled_from([0, 1, 3, 10**9]),
    borders=st.booleans(),
    gap=st.sampled_from([None, 0, 1, 4]),
    seed=seeds,
)
def test_chunkwise_is_the_specification(n, chunk, group, decay, steps, borders, gap, seed):
    q, k, v = draw(n, group, seed)
    frame = draw_frame(n, decay, steps, borders, seed)
    start = None
    if gap is not None:
        start = Start(features(2, 2, 4, 3, seed=seed + 3), features(2, 2, 4, seed=seed + 4), torch.tensor([gap, 2]))
    for total in (True, False):
        expected = solve(Quadratic(), q, k, v, frame, total, start)
        assert_close(tuple(solve(Causal(chunk), q, k, v, frame, total, start)), tuple(expected), rtol=1e-10, atol=1e-9)
        assert (expected.delta is not None) == (expected.z is not None) == total


@given(
    n=st.sampled_from([1, 2, 3, 5, 8, 13, 17]),
    chunk=st.integers(1, 20),
    group=st.integers(1, 3),
    decay=decays,
    steps=st.sampled_from([0, 1, 3, 10**9]),
    borders=st.booleans(),
    seed=seeds,
)
def test_both_ways_at_once_is_the_specification(n, chunk, group, decay, steps, borders, seed):
    q, k, v = draw(n, group, seed)
    frame = draw_frame(n, decay, steps, borders, seed)
    for total in (True, False):
        found, expected = (solve(f, q, k, v, frame, total) for f in (Bidirectional(chunk), Quadratic(causal=False)))
        assert_close((found.out, found.delta), (expected.out, expected.delta), rtol=1e-10, atol=1e-9)


def test_a_state_without_a_distance_stands_one_step_before_the_first_token():
    q, k, v = draw(7, 2, 0)
    frame, S, z = Frame(torch.tensor([0.5, 0.9])), features(2, 2, 4, 3, seed=3), features(2, 2, 4, seed=4)
    gaps = (None, torch.tensor([1, 1]))
    near, told = (solve(Causal(4), q, k, v, frame, True, Start(S, z, gap)) for gap in gaps)
    assert_close(near, told, rtol=0, atol=0)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 130])
@pytest.mark.parametrize("decay", [None, (0.9, 0.99)])
def test_lengths_around_the_usual_chunk_in_float32(n, decay):
    q, k, v = (x.float() for x in draw(n, 2, n))
    frame = draw_frame(n, decay, 0, False, 0)
    for fast, causal in ((Causal(), True), (Bidirectional(), False)):
        found = solve(fast, q, k, v, frame, True)
        expected = solve(Quadratic(causal), q.double(), k.double(), v.double(), frame, True)
        for a, b in zip(found, expected, strict=True):
            if a is not None:
                assert_close(a.double(), b, rtol=0, atol=1e-5 * b.abs().max().item())


@pytest.mark.parametrize("r", [0.5, 1e-3, 1.0])
def test_nothing_overflows_in_100_000_tokens(r):
    n = 100_000
    x = torch.ones(1, 1, n, 1, requires_grad=True)
    sums = solve(Causal(), x, x, x, Frame(torch.tensor([r])), total=True)
    last = float(n) if r == 1 else 1 / (1 - r)
    assert_close(sums.out[0, 0, -1].item(), last, rtol=1e-5, atol=0)
    assert_close(sums.S.item(), last, rtol=1e-5, atol=0)
    (gradient,) = torch.autograd.grad(sums.out.mean() + sums.delta.mean(), x)
    assert gradient.isfinite().all()
    both = solve(Bidirectional(), x, x, x, Frame(torch.tensor([r])), total=True)
    assert_close(both.out[0, 0, n // 2].item(), float(n) if r == 1 else 2 * last - 1, rtol=1e-5, atol=0)


def test_positions_a_billion_apart_fade_to_nothing():
    x = torch.ones(1, 1, 3, 1)
    frame = Frame(torch.tensor([0.99]), torch.tensor([[0, 10**9, 10**9 + 1]]))
    assert_close(solve(Causal(2), x, x, x, frame).out.flatten(), torch.tensor([1.0, 1.0, 1.99]))


@pytest.mark.parametrize("total", [True, False])
@pytest.mark.parametrize("fast", [Causal(16), Bidirectional()])
def test_only_q_k_and_v_are_kept_for_the_gradient(fast, total):
    q, k, v = (features(2, 3, 100, 8, seed=i).requires_grad_() for i in range(3))
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        sums = solve(fast, q, k, v, Frame(), total)
    inputs = sum(x.untyped_storage().nbytes() for x in (q, k, v))
    states = 2 * 3 * 8 * 9 * 8  # one S and one z
    assert inputs <= sum(kept.values()) <= inputs + states
    assert sums.out.requires_grad


def test_a_causal_sum_with_decay_keeps_little_more():
    n = 512
    q, k, v = (features(1, 2, n, 8, seed=i).requires_grad_() for i in range(3))
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    frame = Frame(torch.tensor([0.9, 0.99]), torch.arange(n)[None])
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        solve(Causal(), q, k, v, frame, total=True)
    assert sum(kept.values()) <= sum(x.untyped_storage().nbytes() for x in (q, k, v)) + 8 * 2 * n
