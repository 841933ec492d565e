"""Every engine against the n × n specification in float64: sums, states and all gradients."""

import math

import pytest
import torch
from hypothesis import given, settings
from torch.testing import assert_close

import lrpe
import tests.attention.engines.interpreter as interpreter
from lrpe.attention.engines.fla import FlaEngine
from lrpe.attention.engines.native import NativeEngine
from lrpe.attention.engines.torch_engine import TorchEngine
from lrpe.attention.sums.bidirectional import bidirectional_sums
from lrpe.attention.sums.problem import FORGET, Problem
from tests.attention.engines.problems import in_float64, on_device, problems, solve, specification, unencoded_problems

ENGINES = [NativeEngine(), FlaEngine(), TorchEngine()]
EXAMPLES = 10 if interpreter.RUNS else 60
TOLERANCE = {"fla": 1e-4}  # relative to the largest number
# The same examples every time: with a decay of 1e-6 and a small Δ the terms of a gradient can cancel beyond float32, in
# torch's engine first, and a search finds such an example sooner or later.
DRAWN_ALIKE = settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
SUBTRACTS = {"torch": 0.3, "fla": 1}  # the least size of a gradient of which own keys were subtracted


@pytest.fixture(scope="module", params=ENGINES, ids=lambda engine: engine.name)
def engine(request):
    if request.param.missing():
        pytest.skip(request.param.missing())
    return request.param


@pytest.fixture
def native(request):
    if ENGINES[0].missing():
        pytest.skip(ENGINES[0].missing())
    return ENGINES[0]


def device_of(engine) -> str:
    return "cuda" if engine.name == "fla" and not interpreter.RUNS else "cpu"


def agree(problem, engine) -> None:
    expected, expected_grads = solve(in_float64(problem), specification)
    problem, tolerance = on_device(problem, device_of(engine)), TOLERANCE.get(engine.name, 2e-5)
    if engine.name == "fla" and not problem.causal and problem.log_decay is None:
        assert "which torch computes" in engine.declines(problem)
        return
    assert engine.declines(problem) is None
    found, grads = solve(problem, engine.sums)
    for name, x, y in zip(found._fields, found, expected, strict=True):
        if name != "delta" or isinstance(problem, Problem):
            close(name, x, y, tolerance)
    # The gradient of the log-decay is the difference of terms dq·q and dk·k, which may cancel to nothing.
    terms = max((expected_grads[name] * getattr(problem, name).cpu()).abs().sum(-1).max().item() for name in "qk")
    scales = {"log_decay": max(terms, 1) * problem.q.shape[2]}  # a step is part of every later weight
    # So are those of phases and angles: turning a query and a key alike changes nothing.
    if getattr(problem, "phase", None) is not None:
        scales |= {"phase": max(terms, 1), "alpha": max(terms, 1) * problem.phase.abs().max().item()}
    # So is the gradient of a quotient: a token that sees hardly more than itself has o = v for any score. The torch and
    # fla engines count a token's own key in both directions and subtract it once; the native one counts it once.
    cancels = not problem.causal and problem.log_decay is not None and getattr(problem, "delta", None) is not None
    for name, y in expected_grads.items():
        least = scales.get(name, SUBTRACTS.get(engine.name, 0.2) if cancels else 0.2)
        close(f"gradient of {name}", grads[name], y, tolerance, least)


def close(name, x, y, tolerance, least=0.2) -> None:
    """Compare relative to the largest number, or to the size of the inputs: sums may cancel."""
    assert (x is None) == (y is None), name
    if y is not None and y.numel():
        assert (x.cpu().double() - y).abs().max() <= tolerance * max(y.abs().max().item(), least), name


@DRAWN_ALIKE
@given(problem=problems())
def test_sums_states_and_gradients_of_features_are_the_specification(engine, problem):
    agree(problem, engine)


@DRAWN_ALIKE
@given(problem=unencoded_problems())
def test_features_computed_inside_the_engine_are_the_specification(engine, problem):
    agree(problem, engine)


def example(n=70, d=16, **options) -> Problem:
    torch.manual_seed(0)
    q, k, v = (torch.rand(2, 2, n, d) for _ in range(3))
    return Problem(q, k, v, q, k, **options)


@pytest.mark.parametrize("cut", [1, 31, 32, 40])
def test_a_text_may_be_cut_anywhere(native, cut):
    whole = example(log_decay=torch.tensor([0.9, 0.99]).log().view(1, 2, 1))
    first, rest = (
        {name: getattr(whole, name)[:, :, part] for name in "qkv"} for part in (slice(cut), slice(cut, None))
    )
    ahead = native.sums(Problem(**first, delta_q=first["q"], delta_k=first["k"], log_decay=whole.log_decay))
    after = native.sums(
        Problem(**rest, delta_q=rest["q"], delta_k=rest["k"], log_decay=whole.log_decay, S=ahead.S, z=ahead.z)
    )
    expected = native.sums(whole)
    assert_close(torch.cat([ahead.out, after.out], 2), expected.out)
    assert_close((after.S, after.z), (expected.S, expected.z))


def test_threads_do_not_change_the_sums(native):
    problem, before = example(), torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        several = solve(problem, native.sums)
        torch.set_num_threads(1)
        assert_close(several, solve(problem, native.sums), rtol=0, atol=0)
    finally:
        torch.set_num_threads(before)


def test_nan_reaches_its_own_and_later_tokens_only(native):
    problem = example()
    problem.k[0, 0, 33, 5] = math.nan
    out = native.sums(problem).out
    assert out[0, 0, 33:].isnan().all()
    assert not out[0, 0, :33].isnan().any()
    assert not out[0, 1].isnan().any()
    assert not out[1].isnan().any()


def test_nan_stays_in_its_sequence_of_a_bidirectional_sum(native):
    border = torch.where(torch.arange(70) == 40, FORGET, -0.1).expand(2, 1, 70)
    problem = example(log_decay=border, causal=False)
    problem.k[0, 0, 33, 5] = math.nan
    out = native.sums(problem).out
    assert out[0, 0, :40].isnan().all()
    assert not out[0, 0, 40:].isnan().any()
    assert not out[0, 1].isnan().any()


@pytest.mark.parametrize("log_decay", [None, torch.full((1, 1, 1), -0.01)], ids=["all keys", "decay"])
def test_a_long_bidirectional_sum_keeps_its_digits(native, log_decay):
    q, k, v = torch.rand(3, 1, 1, 20_000, 4).unbind(0)
    problem = Problem(q, k, v, q, k, log_decay, causal=False)
    found, exact = native.sums(problem), bidirectional_sums(in_float64(problem))
    for x, y in ((found.out, exact.out), (found.delta, exact.delta)):
        assert (x.double() / y - 1).abs().max() < 1e-6


def test_a_long_sum_keeps_its_digits(native):
    n = 20_000
    problem = Problem(*torch.rand(3, 1, 1, n, 4).unbind(0))
    problem = problem._replace(delta_q=problem.q, delta_k=problem.k)
    sums = native.sums(problem)
    exact = (problem.q[0, 0].double() * problem.k[0, 0].double().cumsum(0)).sum(-1)
    assert (sums.delta[0, 0, :, 0] / exact - 1).abs().max() < 5e-7


def test_small_numbers_outside_stay_as_they_are(native):
    small = torch.tensor([1e-40])
    native.sums(example(log_decay=torch.full((1, 1, 1), -20.0)))
    assert (small * 1.0).item() != 0


def test_second_derivatives_go_through_torch(native):
    q, k, v = (torch.rand(1, 1, 5, 4, requires_grad=True) for _ in range(3))
    encoding = lrpe.encoding("type2", 4, seed=0)

    def penalty(name):
        with lrpe.engines.use(name):
            out, _ = lrpe.linear_attention(q, k, v, encoding)
        grads = torch.autograd.grad(out.square().sum(), (q, k, v), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in grads), (q, k, v))

    assert_close(penalty("native"), penalty("torch"), rtol=1e-3, atol=1e-4)


def test_it_declines_what_it_cannot_compute_and_says_why(native):
    problem = example()
    assert native.declines(problem) is None
    assert "float32" in native.declines(in_float64(problem))
    assert "nothing" in native.declines(Problem(*(x[:, :, :0] for x in problem[:3])))
    with torch.device("meta"):
        assert "CPU" in native.declines(Problem(*torch.zeros(3, 1, 1, 2, 4).unbind(0)))
    reasons = []
    torch.vmap(lambda x: (reasons.append(native.declines(problem)), x)[1])(torch.zeros(2))
    assert "torch.func" in reasons[0]
