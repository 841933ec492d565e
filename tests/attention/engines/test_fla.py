"""The fla engine beyond the contract: on a GPU, or under Triton's interpreter as ``test_interpreter.py`` runs it."""

from typing import NamedTuple

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close

import lrpe
from lrpe import LrpeError
from lrpe.attention.engines import fla
from lrpe.attention.sums.problem import FORGET, Problem
from tests.attention.engines import interpreter
from tests.attention.engines.problems import on_device
from tests.attention.engines.test_contract import agree

ENGINE = fla.FlaEngine()
DEVICE = "cpu" if interpreter.RUNS else "cuda"
needs_fla = pytest.mark.skipif(ENGINE.missing() is not None, reason=f"fla: {ENGINE.missing()}")


def example(n=70, heads=2, key_heads=2, d=12, delta="given", **options) -> Problem:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, heads, n, d), torch.randn(2, key_heads, n, d), torch.randn(2, key_heads, n, 5)
    features = {None: (None, None), "scores": (q, k), "given": (q[..., :4].abs(), k[..., :4].abs())}[delta]
    return Problem(q, k, v, *features, **options)


def started(delta_width=4, heads=2, d=12):
    return {"S": torch.randn(2, heads, d, 5), "z": torch.randn(2, heads, delta_width)}


@needs_fla
def test_many_packed_sequences_cost_no_digits():
    """As steps of -800 in one sum of log-decays, a border every three tokens would cost the later weights 1e-3."""
    log_decay = -torch.rand(2, 1, 64)
    log_decay[..., ::3] = FORGET
    agree(example(64, 1, 1, delta=None, log_decay=log_decay), ENGINE)


@needs_fla
@pytest.mark.parametrize(("one", "other"), [(0, 1), (slice(None), slice(None))], ids=["different", "the same"])
def test_heads_may_forget_at_different_tokens_or_the_same(one, other):
    log_decay = -torch.rand(2, 2, 70)
    log_decay[0, one, 0] = log_decay[0, one, 11] = log_decay[1, other, 8] = log_decay[1, other, 66] = FORGET
    agree(example(log_decay=log_decay, **started()), ENGINE)


@needs_fla
@pytest.mark.parametrize("key_heads", [1, 2])
@pytest.mark.parametrize("delta", ["given", None])
def test_a_decoding_step_is_the_specification(key_heads, delta):
    state = started(heads=key_heads)
    state["z"] = state["z"] if delta else None
    options = {"log_decay": -torch.rand(2, key_heads, 1)} if delta else {}
    agree(example(1, 2, key_heads, delta=delta, **options, **state), ENGINE)


@needs_fla
@pytest.mark.parametrize("log_decay", [torch.tensor([[[-0.5], [-0.01]]]), "borders"], ids=["fixed", "borders"])
def test_both_directions_are_the_specification(log_decay):
    if isinstance(log_decay, str):
        log_decay = -torch.rand(2, 2, 70)
        log_decay[0, :, [10, 66]] = log_decay[1, :, 0] = FORGET
    agree(example(log_decay=log_decay, delta="scores", causal=False), ENGINE)


@needs_fla
def test_half_precision_neither_overflows_nor_rounds_the_sums():
    """Each sum is far above float16's 65,504; only the inputs are rounded."""
    exact = Problem(*(x.half() * 16 for x in torch.rand(3, 1, 1, 70, 16)))
    exact = exact._replace(delta_q=exact.q, delta_k=exact.k)
    sums = ENGINE.sums(on_device(exact, DEVICE))
    assert sums.out.dtype == sums.delta.dtype == torch.float32
    expected = (exact.q.double() @ exact.k.double().mT).tril() @ exact.v.double()
    assert expected.max() > 2 * 65504
    assert_close(sums.out.cpu().double(), expected, rtol=1e-3 if DEVICE == "cuda" else 1e-5, atol=0)


@pytest.mark.skipif(interpreter.RUNS, reason="Triton's interpreter computes bfloat16 wrongly")
@needs_fla
def test_bfloat16_is_within_its_rounding():
    options = {"log_decay": torch.tensor([[[-0.1], [-0.01]]], device=DEVICE)}
    q, k, v = (torch.randn(2, 2, 300, 64, device=DEVICE).bfloat16().requires_grad_() for _ in range(3))
    wide = [x.detach().float().requires_grad_() for x in (q, k, v)]
    found, expected = ENGINE.sums(Problem(q, k, v, **options)), specification_in_float32(*wide, **options)
    g = torch.randn_like(expected.out)
    grads = torch.autograd.grad((found.out * g).sum(), (q, k, v))
    exact = torch.autograd.grad((expected.out * g).sum(), wide)
    for x, y in zip((found.out, *grads), (expected.out, *exact), strict=True):
        assert (x.float() - y).abs().max() <= 2e-2 * y.abs().max()


def specification_in_float32(q, k, v, **options):
    return lrpe.Quadratic()(Problem(q, k, v, **options))


CALLS = {
    "type 1": {"encoding": "type1"},
    "type 2, encoded": {"encoding": "type2", "normalizer": "encoded", "feature_map": "elu+1"},
    "type 3, output": {"encoding": "type3", "normalizer": "output"},
    "gated": {"encoding": "rope", "log_decay": "token"},
    "packed": {"encoding": "type2", "sequences": torch.arange(40) // 15},
    "padded": {"encoding": "type2", "mask": torch.arange(40)[None] >= torch.tensor([[0], [7]])},
    "bidirectional": {"encoding": "type2", "summation": "bidirectional"},
}


@needs_fla
@pytest.mark.parametrize("call", CALLS)
def test_attention_is_that_of_the_torch_engine(call):
    options = dict(CALLS[call])
    torch.manual_seed(0)
    inputs = [torch.randn(2, heads, 40, 8, device=DEVICE, requires_grad=True) for heads in (4, 2, 2)]
    if "log_decay" in options:
        inputs.append((-torch.rand(2, 2, 40, device=DEVICE)).requires_grad_())
    g = torch.randn(2, 4, 40, 8, device=DEVICE)
    options = {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in options.items()}

    def attend(engine):
        gate = {"log_decay": inputs[3]} if "log_decay" in options else {}
        with lrpe.engines.use(engine):
            out, state = lrpe.linear_attention(*inputs[:3], **options | gate)
        assert lrpe.engines.last().engine == engine
        states = [] if state is None else [state.S, state.z]
        loss = (out * g).sum() + sum(x.sin().sum() for x in states)
        return out, *states, *torch.autograd.grad(loss, inputs)

    assert_close(attend("fla"), attend("torch"), rtol=1e-3, atol=1e-4)


@needs_fla
def test_a_text_may_be_cut_anywhere():
    layer = lrpe.LinearAttention(16, heads=2, decay="gated").to(DEVICE)
    x = torch.randn(2, 70, 16, device=DEVICE)
    with torch.no_grad(), lrpe.engines.use("fla"):
        whole = layer(x)
        _, state = layer.prefill(x[:, :33])
        rest, _ = layer.prefill(x[:, 33:], state)
    assert_close(rest, whole[:, 33:], rtol=1e-3, atol=1e-5)


@needs_fla
def test_second_derivatives_are_refused_not_wrong():
    q = torch.rand(1, 1, 5, 4, device=DEVICE, requires_grad=True)
    (g,) = torch.autograd.grad(ENGINE.sums(Problem(q, q, q)).out.sum(), q)
    assert not g.requires_grad
    with pytest.raises(LrpeError, match=r"use\('torch'\)"):
        torch.autograd.grad(ENGINE.sums(Problem(q, q, q)).out.sum(), q, create_graph=True)


class Described(NamedTuple):
    """A sum as another engine may want it described."""

    q: torch.Tensor
    v: torch.Tensor


@needs_fla
def test_it_declines_what_it_cannot_compute_and_says_why():
    problem = on_device(example(), DEVICE)
    assert ENGINE.declines(problem) is None
    assert "float64" in ENGINE.declines(problem._replace(q=problem.q.double()))
    assert "matrix products" in ENGINE.declines(problem._replace(causal=False))
    assert "nothing" in ENGINE.declines(Problem(*(x[:, :, :0] for x in problem[:3])))
    assert "features" in ENGINE.declines(Described(problem.q, problem.v))
    assert "one device" in ENGINE.declines(problem._replace(v=problem.v.to("meta")))
    reasons = []
    torch.vmap(lambda x: (reasons.append(ENGINE.declines(problem)), x)[1])(torch.zeros(2, device=DEVICE))
    assert "torch.func" in reasons[0]


@pytest.mark.skipif(interpreter.RUNS, reason="the interpreter is what makes the engine take CPU tensors")
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_it_takes_cuda_tensors_only(device):
    q = torch.zeros(1, 1, 2, 4, device=device)
    assert ENGINE.declines(Problem(q, q, q)) == f"it runs on CUDA; q is on {device}"


def test_float32_is_left_to_torch_unless_tf32_is_allowed_or_triton_exact(monkeypatch):
    with FakeTensorMode():
        problem = Problem(*(torch.empty(1, 1, 2, 4, device="cuda") for _ in range(3)))
        half = Problem(*(x.bfloat16() for x in problem[:3]))
        one = torch.empty(1, 1, 1, 4, device="cuda")
        step = Problem(one, one, one, S=torch.empty(1, 1, 4, 4, device="cuda"))
    monkeypatch.delenv("TRITON_F32_DEFAULT", raising=False)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        assert "TF32" in fla._declines_gpu(problem)
        assert fla._declines_gpu(half) is None
        assert fla._declines_gpu(step) is None
        monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
        assert fla._declines_gpu(problem) is None
        monkeypatch.delenv("TRITON_F32_DEFAULT")
        torch.set_float32_matmul_precision("high")
        assert fla._declines_gpu(problem) is None
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("capability", "triton", "declined"), [(9, "3.6.0", 1), (9, "3.7.1", 0), (8, "3.6.0", 0)])
def test_wrong_gradients_of_an_old_triton_on_hopper_are_avoided(monkeypatch, capability, triton, declined):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (capability, 0))
    monkeypatch.setattr(fla, "version", lambda package: triton)
    with FakeTensorMode():
        q = torch.empty(1, 1, 2, 4, device="cuda", dtype=torch.bfloat16)
        problem = Problem(q, q, q, log_decay=torch.empty(1, 1, 1, device="cuda"))
    assert ("Hopper" in (fla._declines_gpu(problem) or "")) == bool(declined)
    assert fla._declines_gpu(problem._replace(log_decay=None)) is None


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(fla, "_absent_packages", lambda: ("triton",))
    assert ENGINE.missing() == "it needs triton; run pip install 'lrpe[gpu]'"
    monkeypatch.setattr(fla, "_absent_packages", tuple)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "CUDA device" in ENGINE.missing()
