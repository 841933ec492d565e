"""One token by the native kernel: the n × n specification, and the state before stays as it was."""

import math
from contextlib import contextmanager
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import lrpe
from lrpe.attention.engines import native
from lrpe.attention.engines.native import NativeEngine, native_step
from lrpe.attention.engines.torch_engine import TorchEngine
from lrpe.attention.sums.problem import FORGET, Problem, naive_sums
from tests.attention.engines.problems import in_float64, problems

pytestmark = pytest.mark.skipif(NativeEngine().missing() is not None, reason="the native engine is not built")
SIZES = [1, 3, 4, 16, 20, 64]


def close(x, y, name) -> None:
    assert (x is None) == (y is None), name
    if y is not None and y.numel():
        assert (x.double() - y).abs().max() <= 2e-5 * max(y.abs().max().item(), 0.2), name


@settings(max_examples=60, deadline=None)
@given(problem=problems())
def test_a_step_on_given_features_is_the_specification(problem):
    first = {name: getattr(problem, name)[:, :, :1] for name in ("q", "k", "v")}
    if problem.delta_q is not None:
        same = problem.sums_scores
        first["delta_q"] = first["q"] if same else problem.delta_q[:, :, :1]
        first["delta_k"] = first["k"] if same else problem.delta_k[:, :, :1]
        first["z"] = torch.rand(*problem.k.shape[:2], first["delta_k"].shape[-1])
    first["log_decay"] = None if problem.log_decay is None else problem.log_decay[..., :1]
    token = Problem(**first, S=torch.randn(*problem.k.shape[:2], problem.v.shape[-1], problem.k.shape[-1]).mT)
    exact = in_float64(token)
    found, expected, terms = native_step(token), naive_sums(exact), naive_sums(sizes(exact))
    for name, x, y, size in zip(found._fields, found, expected, terms, strict=True):
        assert (x is None) == (y is None), name
        if y is not None:
            assert x.shape == y.shape, name
            assert ((x.double() - y).abs() <= 5e-7 * size + 1e-12).all(), name


def sizes(problem: Problem) -> Problem:
    """Return the problem whose sums add up the sizes of the terms, to which a rounding error is proportional."""
    tensors = ("q", "k", "v", "delta_q", "delta_k", "S", "z")
    return problem._replace(**{name: x.abs() for name in tensors if (x := getattr(problem, name)) is not None})


@st.composite
def layers(draw):
    """Draw queries, keys and values of a text, and options of ``linear_attention`` that the kernel takes itself."""
    torch.manual_seed(draw(st.integers(0, 2**31)))
    key_heads, group, batch = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    d, e, n = 2 * draw(st.sampled_from([1, 2, 8, 11, 32])), draw(st.sampled_from(SIZES)), draw(st.integers(2, 5))
    basis = draw(st.sampled_from(["identity", "householder"]))
    more = {"reflections": draw(st.sampled_from([1, 2]))} if basis == "householder" else {}
    angles = {"heads": draw(st.sampled_from([None, key_heads])), "rotated": draw(st.sampled_from([0, 2, d]))}
    encode = lrpe.encoding(f"{basis}*orthogonal", d, seed=1, **angles, **more)
    if encode.matrix.angles.learned:  # all that turn
        torch.nn.init.normal_(encode.matrix.angles.log_alpha)  # it starts at 0
    options = {"feature_map": draw(st.sampled_from(["elu+1", "softplus"]))}
    options["normalizer"] = draw(st.sampled_from(["plain", "output", "output-rms-head"]))
    decay = draw(st.sampled_from([None, "spread", "token", "forget"]))
    if decay == "spread":
        options["decay"] = "spread"
    elif decay is not None:
        rates = -torch.rand(batch, key_heads, n)
        options["log_decay"] = (
            rates if decay == "token" else torch.where(torch.rand(rates.shape) < 0.5, -math.inf, rates)
        )
    if angles["rotated"] and draw(st.booleans()):
        options["steps"] = torch.rand(batch, key_heads, n, *draw(st.sampled_from([(), (encode.angle_count,)])))
    if draw(st.booleans()):
        options["mask"] = torch.rand(batch, n) < 0.7
    q, k, v = torch.randn(batch, key_heads * group, n, d), *(torch.randn(batch, key_heads, n, w) for w in (d, e))
    return (q, k, v, encode), options


@settings(max_examples=80, deadline=None)
@given(case=layers())
def test_the_last_token_after_a_state_is_the_last_of_the_whole_text(case):
    (q, k, v, encode), options = case
    with torch.no_grad():
        exact = tuple(x.double() for x in (q, k, v)), encode, {n: _widen(x) for n, x in options.items()}
        whole, after = lrpe.linear_attention(*exact[0], exact[1], **exact[2])
        first, last = ({n: _cut(x, part) for n, x in options.items()} for part in (slice(-1), slice(-1, None)))
        _, state = lrpe.linear_attention(*(x[:, :, :-1] for x in (q, k, v)), encode, **first)
        kept = [None if x is None else x.clone() for x in state]
        with spied() as described, lrpe.engines.use("native"):
            out, found = lrpe.linear_attention(*(x[:, :, -1:] for x in (q, k, v)), encode, state=state, **last)
    assert_close(list(state), kept, rtol=0, atol=0, equal_nan=True)
    real = last["mask"][:, 0] if "mask" in last else slice(None)  # what a row without a token returns has no meaning
    by_torch = TorchEngine().sums(described[0])
    assert_close((by_torch.S, by_torch.z), (found.S, found.z if described[0].delta else None), rtol=1e-3, atol=1e-5)
    close(out[real], whole[real][:, :, -1:], "out")
    close(found.S, after.S, "S")
    close(found.z, after.z, "z")


@contextmanager
def spied():
    """Collect the tokens that the native engine is given."""
    seen = []
    with patch.object(native, "native_step", lambda token: (seen.append(token), native_step(token))[1]):
        yield seen


def _cut(x, part):
    """Cut what is said per token: the mask (batch, n), decays and steps (batch, key heads, n, ...)."""
    return x if isinstance(x, str) else x[:, part] if x.dtype == torch.bool else x[:, :, part]


def _widen(x):
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def token(**changes) -> Problem:
    torch.manual_seed(0)
    q, k, v = torch.rand(3, 2, 2, 1, 8).unbind(0)
    return Problem(q, k, v, q, k, S=torch.rand(2, 2, 8, 8), z=torch.rand(2, 2, 8))._replace(**changes)


def test_nan_stays_in_its_own_row_and_head():
    problem = token()
    problem.k[0, 1, 0, 3] = math.nan
    out = native_step(problem).out
    assert out[0, 1].isnan().all()
    assert not out[0, 0].isnan().any()
    assert not out[1].isnan().any()


def test_a_step_that_forgets_everything_forgets_nan_too():
    problem = token(log_decay=torch.full((1, 1, 1), FORGET))
    problem.S[0, 0], problem.z[1, 1] = math.nan, math.nan
    sums = native_step(problem)
    assert not any(x.isnan().any() for x in sums)
    assert_close(sums.S, problem.k.mT @ problem.v)


def test_threads_do_not_change_a_step():
    torch.manual_seed(0)
    q, k, v = torch.rand(3, 16, 8, 1, 64).unbind(0)
    problem, before = Problem(q, k, v, S=torch.rand(16, 8, 64, 64)), torch.get_num_threads()
    try:
        torch.set_num_threads(3)  # enough numbers for three
        several = native_step(problem)
        torch.set_num_threads(1)
        assert_close(several, native_step(problem), rtol=0, atol=0)
    finally:
        torch.set_num_threads(before)


def test_a_step_whose_gradient_is_needed_has_it():
    layer = lrpe.LinearAttention(16, heads=2)
    x = torch.randn(1, 4, 16, requires_grad=True)
    _, state = layer.prefill(x[:, :3])
    last, _ = layer.step(x[:, 3], state)
    (stepped,) = torch.autograd.grad(last.sum(), x, retain_graph=True)
    (whole,) = torch.autograd.grad(layer(x)[:, 3].sum(), x)
    assert_close(stepped, whole, rtol=1e-4, atol=1e-5)
