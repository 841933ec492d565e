"""The causal sum of equal weights, without a decay: against the specification, to second order and compiled."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._dynamo.testing import CompileCounterWithBackend
from torch.autograd import gradgradcheck
from torch.func import grad, vmap
from torch.testing import assert_close

from lrpe import Causal, LinearAttention, Quadratic
from tests.attention.frames import Frame, Start, solve
from tests.encodings.compositions import features, seeds

HEADS = 4


def draw(n, seed=0, dtype=torch.float64):
    """q, k, v of two rows, and a state."""
    sizes = ((2, HEADS, n, 4), (2, HEADS, n, 4), (2, HEADS, n, 3), (2, HEADS, 4, 3), (2, HEADS, 4))
    return [features(*size, seed=seed + i, dtype=dtype).requires_grad_() for i, size in enumerate(sizes)]


def sums_and_gradients(summation, inputs, total, started):
    q, k, v, *state = inputs
    start = Start(*state, torch.tensor([1, 3])) if started else None
    sums = [part for part in solve(summation, q, k, v, Frame(), total, start) if part is not None]
    weighted = sum((part * features(*part.shape, seed=9)).sum() for part in sums)
    gradients = torch.autograd.grad(weighted, inputs, allow_unused=True)
    return [*sums, *(gradient for gradient in gradients if gradient is not None)]


@given(
    n=st.sampled_from([1, 2, 7, 31, 32, 33, 70]),
    chunk=st.sampled_from([1, 3, 32, 64]),
    total=st.booleans(),
    started=st.booleans(),
    seed=seeds,
)
def test_it_is_the_specification(n, chunk, total, started, seed):
    inputs = draw(n, seed)
    found, expected = (sums_and_gradients(how, inputs, total, started) for how in (Causal(chunk), Quadratic()))
    assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("total", [True, False])
def test_gradients_of_its_gradients_are_those_of_finite_differences(total):
    q, k, v, S, z = draw(3)

    def run(q, k, v, S, given=None):
        start = Start(S, z.detach() if given is None else given, torch.tensor([1, 1]))
        return tuple(part for part in solve(Causal(2), q, k, v, Frame(), total, start) if part is not None)

    assert gradgradcheck(run, (q, k, v, S, z) if total else (q, k, v, S), fast_mode=True)


def test_it_takes_tokens_before_heads_and_sums_in_float32():
    q, k, v = (x.detach().transpose(1, 2).contiguous().transpose(1, 2).bfloat16() for x in draw(40)[:3])
    out = solve(Causal(), q, k, v, Frame()).out
    expected = solve(Quadratic(), q.double(), k.double(), v.double(), Frame()).out
    assert out.dtype == torch.float32
    assert_close(out.double(), expected, rtol=0, atol=1e-5 * expected.abs().max().item())


def test_single_examples_have_gradients():
    q, k, v = (x.detach() for x in draw(5)[:3])

    def loss(q, k, v):
        return solve(Causal(2), q[None], k[None], v[None], Frame(), total=True).out.square().sum()

    found = vmap(grad(loss, argnums=(0, 1, 2)))(q, k, v)
    leaves = q, k, v = [x.clone().requires_grad_() for x in (q, k, v)]
    expected = torch.autograd.grad(solve(Quadratic(), q, k, v, Frame()).out.square().sum(), leaves)
    assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_two_graphs_serve_every_length():
    torch.compiler.reset()
    torch.manual_seed(0)
    layer, counter = LinearAttention(16, 4, "type2"), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=counter, dynamic=True)
    for n in (17, 64, 100):
        x = features(2, n, 16, seed=n, dtype=torch.float32).requires_grad_()
        found, expected = (run(x) for run in (compiled, layer))
        assert_close(found, expected, rtol=1e-4, atol=1e-5)
        slopes = [torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected)]
        assert_close(*slopes, rtol=1e-4, atol=1e-4)
    assert counter.frame_count <= 2
