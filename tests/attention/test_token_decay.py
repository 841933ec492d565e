"""A log-decay per token: the sums against the n × n formula, with every gradient, and the layers that learn one."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from lrpe import Bidirectional, Causal, LinearAttention, LrpeError, Quadratic, linear_attention, spread_decay
from lrpe.attention import FixedDecay, GatedDecay, LearnedDecay, tnl_decay
from lrpe.attention.sums.problem import FORGET, Problem
from tests.attention.choices import token_dependent
from tests.attention.softmax import SoftmaxAttention
from tests.encodings.compositions import features, seeds

HEADS, KEY_HEADS, N = 4, 2, 9


def draw(n=N, group=2, own_delta=True, started=False, seed=0, dtype=torch.float64):
    """A problem with a log-decay per token, borders included, and Δ of its own features or of the scores."""
    heads = KEY_HEADS * group
    q, k, v = (features(2, h, n, d, seed=seed + i) for i, (h, d) in enumerate(((heads, 4), (2, 4), (2, 3))))
    delta = (features(2, heads, n, 5, seed=seed + 3), features(2, 2, n, 5, seed=seed + 4)) if own_delta else (q, k)
    log_decay = -features(2, 2, n, seed=seed + 5).abs()
    start = {}
    if started:
        start = {"S": features(2, 2, 4, 3, seed=seed + 6), "z": features(2, 2, delta[1].shape[-1], seed=seed + 7)}
    return Problem(q, k, v, *delta, log_decay=log_decay, **start)


def solution_and_gradients(how, problem):
    """All sums, and the gradient of every tensor for a random direction of them."""
    leaves = {
        name: getattr(problem, name).clone().requires_grad_()
        for name in ("q", "k", "v", "delta_q", "delta_k", "log_decay", "S", "z")
        if getattr(problem, name) is not None
    }
    if problem.sums_scores:
        leaves |= {"delta_q": leaves["q"], "delta_k": leaves["k"]}
    sums = [x for x in how(problem._replace(**leaves)) if x is not None]
    weighted = sum((x * features(*x.shape, seed=11 + i)).sum() for i, x in enumerate(sums))
    return sums, torch.autograd.grad(weighted, list({id(x): x for x in leaves.values()}.values()))


@given(
    n=st.sampled_from([1, 2, 5, 9, 17]),
    chunk=st.sampled_from([1, 2, 4, 7, 64]),
    group=st.integers(1, 2),
    own_delta=st.booleans(),
    started=st.booleans(),
    seed=seeds,
)
def test_outputs_states_and_all_gradients_are_those_of_the_formula(n, chunk, group, own_delta, started, seed):
    problem = draw(n, group, own_delta, started, seed)
    found, expected = (solution_and_gradients(how, problem) for how in (Causal(chunk), Quadratic()))
    assert_close(found, expected, rtol=1e-10, atol=1e-10)


@given(n=st.sampled_from([1, 2, 9, 17]), chunk=st.sampled_from([1, 4, 64]), own_delta=st.booleans(), seed=seeds)
def test_both_directions_too(n, chunk, own_delta, seed):
    problem = draw(n, 2, own_delta, seed=seed)
    found, expected = (solution_and_gradients(how, problem) for how in (Bidirectional(chunk), Quadratic(causal=False)))
    assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_one_log_decay_shared_by_tokens_or_heads_has_the_sum_of_their_gradients():
    for shape in ((1, 2, 1), (2, 1, N), (1, 1, 1)):
        problem = draw(started=True)._replace(log_decay=-features(*shape, seed=5).abs())
        found, expected = (solution_and_gradients(how, problem) for how in (Causal(4), Quadratic()))
        assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("started", [False, True])
def test_gradients_of_gradients(started):
    problem = draw(4, started=started)
    tensors = [x.requires_grad_() for x in problem[:8] if x is not None]

    def run(*tensors):
        return tuple(x for x in Causal(2)(Problem(*tensors[:6], *tensors[6:])) if x is not None)

    assert gradcheck(run, tensors, fast_mode=True)
    assert gradgradcheck(run, tensors, fast_mode=True)


@pytest.mark.parametrize("r", [1e-6, 0.5, 1.0])
def test_nothing_overflows_and_nothing_is_lost_in_100_000_tokens(r):
    n = 100_000
    x, log_decay = torch.ones(1, 1, n, 1, requires_grad=True), torch.full((1, 1, n), math.log(r), requires_grad=True)
    sums = Causal()(Problem(x, x, x, x, x, log_decay))
    last = float(n) if r == 1 else 1 / (1 - r)
    assert_close(sums.out[0, 0, -1].item(), last, rtol=1e-5, atol=0)
    gradients = torch.autograd.grad(sums.out.mean() + sums.delta.mean(), (x, log_decay))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_a_difference_of_long_sums_keeps_its_digits_in_float32():
    """Steps of -20 and steps of -1e-4 in one chunk: c is in the hundreds, the differences that matter are small."""
    log_decay = torch.where(torch.arange(64) % 8 == 0, -20.0, -1e-4).double()[None, None]
    q, k, v = (features(1, 1, 64, 4, seed=i).abs() for i in range(3))
    expected = Quadratic()(Problem(q, k, v, log_decay=log_decay)).out
    found = Causal()(Problem(q.float(), k.float(), v.float(), log_decay=log_decay.float())).out
    assert_close(found.double(), expected, rtol=2e-6, atol=1e-6)


def test_forgetting_everything_is_starting_anew():
    q, k, v = (features(1, 2, 8, 4, seed=i) for i in range(3))
    log_decay = torch.full((1, 1, 8), -0.1, dtype=torch.float64)
    log_decay[..., 5] = -math.inf
    whole, _ = linear_attention(q, k, v, "rope", log_decay=log_decay)
    alone, _ = linear_attention(q[:, :, 5:], k[:, :, 5:], v[:, :, 5:], "rope", log_decay=log_decay[..., 5:])
    assert_close(whole[:, :, 5:], alone, rtol=1e-12, atol=1e-12)
    assert math.exp(FORGET) == 0


def test_the_state_of_a_packed_sequence_forgets_what_its_tokens_forget():
    q, k, v = (features(1, 2, 7, 4, seed=i) for i in range(3))
    log_decay = torch.full((1, 1, 7), -0.1, dtype=torch.float64)
    log_decay[..., 5] = -math.inf
    _, states = linear_attention(q, k, v, "rope", log_decay=log_decay, cu_seqlens=torch.tensor([0, 3, 7]))
    for row, own in enumerate((slice(0, 3), slice(3, 7))):
        _, alone = linear_attention(*(x[:, :, own] for x in (q, k, v)), "rope", log_decay=log_decay[..., own])
        assert_close(states.S[row], alone.S[0], rtol=1e-12, atol=1e-12)
        assert_close(states.z[row], alone.z[0], rtol=1e-12, atol=1e-12)


def test_the_function_takes_a_log_decay_that_equals_a_decay():
    q, k, v = (features(2, 2, 7, 4, seed=i) for i in range(3))
    r = torch.tensor([0.5, 0.9], dtype=torch.float64)
    for options in ({}, {"summation": "bidirectional"}, {"mask": torch.tensor([[0, 0, 1, 1, 1, 0, 1], [1] * 7])}):
        fixed, _ = linear_attention(q, k, v, "type2", decay=r, **options)
        log_decay = r.log()[None, :, None].expand(2, 2, 7)
        assert_close(
            linear_attention(q, k, v, "type2", log_decay=log_decay, **options)[0], fixed, rtol=1e-10, atol=1e-10
        )


REFUSED = {
    "above 0": ({"log_decay": torch.full((1, 2, 5), 0.1)}, r"log_decay must be at most 0.*got 0.1.*r\.log\(\)"),
    "shape": ({"log_decay": torch.zeros(2, 5)}, r"log_decay must be real, of shape.*\(1, 2, 5\); got.*\(2, 5\)"),
    "two": ({"log_decay": torch.zeros(1, 2, 5), "decay": [0.9, 0.9]}, r"log_decay replaces decay"),
    "own": ({"log_decay": torch.zeros(1, 2, 5), "encoding": "per"}, r"brings its own decay"),
    "learned": ({"decay": "gated"}, r"decay='gated' has parameters.*log_decay="),
    "module": ({"decay": LearnedDecay(torch.tensor([0.5, 0.5]))}, r"log_decay=decay\(x\)"),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_a_log_decay_is_refused(options, words):
    q = torch.ones(1, 2, 5, 4)
    with pytest.raises(LrpeError, match=words):
        linear_attention(q, q, q, **{"encoding": "rope"} | options)


# Layers


@pytest.mark.parametrize("decay", ["learned", "gated"])
@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
def test_learned_and_gated_decays_start_at_the_spread_one(kind, decay):
    x = features(2, 6, 8, dtype=torch.float32)
    torch.manual_seed(0)
    spread = kind(8, 2, "rope", decay="spread")
    torch.manual_seed(0)
    layer = kind(8, 2, "rope", decay=decay)
    assert_close(layer(x), spread(x), rtol=1e-5, atol=1e-6)
    gradients = torch.autograd.grad(layer(x).square().sum(), list(layer.decay.parameters()))
    assert all(gradient.abs().max() > 0 for gradient in gradients)


@pytest.mark.parametrize("decay", ["learned", "gated"])
@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
def test_prefill_and_steps_give_the_whole_pass_cut_anywhere(kind, decay):
    layer, x = token_dependent(kind, decay=decay), features(2, 7, 8)
    whole = layer(x)
    for cut in range(1, 7):
        y, state = layer.prefill(x[:, :cut])
        later = [y]
        for token in x[:, cut:].unbind(1):
            y, state = layer.step(token, state)
            later.append(y[:, None])
        assert_close(torch.cat(later, 1), whole, rtol=1e-10, atol=1e-10)
        pieces = [layer.prefill(x[:, :cut])]
        pieces.append(layer.prefill(x[:, cut:], pieces[0][1]))
        assert_close(torch.cat([y for y, _ in pieces], 1), whole, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
def test_padding_and_packing_change_nothing(kind, summation):
    layer, x = token_dependent(kind, decay="gated", summation=summation), features(1, 7, 8)
    alone = torch.cat([layer(x[:, :3]), layer(x[:, 3:])], 1)
    assert_close(layer(x, cu_seqlens=torch.tensor([0, 3, 7])), alone, rtol=1e-10, atol=1e-10)
    noise = 10 * features(1, 2, 8, seed=3)
    mask = torch.tensor([[1, 1, 1, 0, 0, 1, 1, 1, 1]])
    padded = torch.cat([x[:, :3], noise, x[:, 3:]], 1)
    assert_close(layer(padded, mask=mask)[mask.bool()], layer(x)[0], rtol=1e-10, atol=1e-10)


def test_a_gated_softmax_is_the_forgetting_transformers():
    """softmax(q·k scale + Σ log f) with every number written out."""
    layer, x = token_dependent(SoftmaxAttention, "none", decay="gated"), features(1, 5, 8)
    q, k, v = layer.project(x, x)
    log_f = torch.nn.functional.logsigmoid(x @ layer.decay.weight.mT + layer.decay.bias)[0]  # (n, key heads)
    out = torch.zeros(1, HEADS, 5, 2, dtype=torch.float64)
    for h in range(HEADS):
        g = h // 2
        for t in range(5):
            scores = torch.stack(
                [layer.scale * q[0, h, t] @ k[0, g, s] + log_f[s + 1 : t + 1, g].sum() for s in range(t + 1)]
            )
            out[0, h, t] = scores.softmax(0) @ v[0, g, : t + 1]
    assert_close(layer(x), layer.join(out, x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("made", "continued"), [(None, "gated"), ("gated", "spread")])
def test_a_softmax_layer_refuses_the_state_of_another_decay(made, continued):
    x = torch.ones(2, 3, 8)
    _, state = SoftmaxAttention(8, 2, "rope", decay=made).prefill(x)
    with pytest.raises(LrpeError, match="log_decay if, and only if, the decay depends on the tokens"):
        SoftmaxAttention(8, 2, "rope", decay=continued).step(x[:, 0], state)


def test_a_softmax_layer_refuses_a_log_decay_of_another_size():
    layer, x = SoftmaxAttention(8, 2, "rope", decay="gated"), torch.ones(2, 3, 8)
    _, state = layer.prefill(x)
    with pytest.raises(LrpeError, match=r"state.log_decay must have shape .* = \(2, 2, 3\); got \(2, 2, 1\)"):
        layer.step(x[:, 0], state._replace(log_decay=state.log_decay[..., :1]))


def test_tnl_is_its_formula_and_later_layers_see_more():
    assert_close(tnl_decay(4), [math.exp(-2.0), math.exp(-4.0), math.exp(-6.0), math.exp(-8.0)])
    first, last = tnl_decay(4, 0, 6), tnl_decay(4, 5, 6)
    assert all(a < b < 1 for a, b in zip(first, last, strict=True))
    assert_close(LinearAttention(8, 4, "rope", decay="tnl").decay.rates(), torch.tensor(tnl_decay(4)).double())


def test_a_layer_takes_an_object_and_tells_its_rates():
    r = torch.tensor([0.5, 0.75])
    for decay in (FixedDecay(r), LearnedDecay(r), GatedDecay(r, 8)):
        layer = LinearAttention(8, 2, "rope", decay=decay)
        assert layer.decay is decay
        assert_close(decay.rates().float(), r)
    assert_close(LinearAttention(8, 2, "rope").decay.rates().float(), torch.tensor(spread_decay(2)))


BAD_OBJECTS = {
    "above 1": (lambda: FixedDecay(torch.tensor([2.0, 0.5])), "decay must have 0 < r ≤ 1; got"),
    "NaN": (lambda: LearnedDecay([math.nan, 0.5]), "decay must have 0 < r ≤ 1; got"),
    "integers": (lambda: FixedDecay(torch.tensor([1, 1])), "decay must have one real r per key head.*int64"),
    "one number": (lambda: GatedDecay(torch.tensor(0.5), 8), r"decay must have one real r per key head.*shape \(\)"),
    "words": (lambda: LearnedDecay("ab"), "decay must be .* one number per key head"),
    "heads": (lambda: LearnedDecay([0.5]), r"decay must give one log r per key head, \(1, 2, 1\).*LearnedDecay gave"),
    "width": (lambda: GatedDecay([0.5, 0.5], 5), "decay must have the layer's width; it is for 5, x has 8"),
}


@pytest.mark.parametrize(("make", "words"), BAD_OBJECTS.values(), ids=BAD_OBJECTS)
def test_an_object_that_does_not_fit_is_refused_when_the_layer_is_built(make, words):
    with pytest.raises(LrpeError, match=words):
        LinearAttention(8, 2, "rope", decay=make())


def test_a_gate_stays_in_float32_in_a_bfloat16_layer():
    layer = LinearAttention(8, 2, "rope", decay="gated").bfloat16()
    assert layer.decay.weight.dtype == layer.decay.bias.dtype == torch.float32
    assert layer(features(1, 5, 8).bfloat16()).isfinite().all()


def test_a_fixed_decay_that_is_written_to_is_the_new_one():
    decay, x = FixedDecay([0.5, 0.25]), torch.zeros(1, 1, 4)

    def is_that_of(decay: FixedDecay, *r: float) -> bool:
        return torch.allclose(decay(x).exp().flatten(), torch.tensor(r, dtype=torch.float64))

    with torch.inference_mode():
        assert is_that_of(decay, 0.5, 0.25)
    assert not decay(x).is_inference()
    decay.load_state_dict({"r": torch.tensor([0.125, 1.0])})
    copied = copy.deepcopy(decay)
    assert is_that_of(copied, 0.125, 1.0)
    assert is_that_of(decay, 0.125, 1.0)
    with torch.inference_mode():
        decay.r.fill_(0.5)
        assert is_that_of(decay, 0.5, 0.5)
        decay.r = torch.tensor([0.25, 0.25])  # made in inference mode: no writes are counted
        assert is_that_of(decay, 0.25, 0.25)
        decay.r.fill_(0.5)
        assert is_that_of(decay, 0.5, 0.5)
    replaced = torch.func.functional_call(copied, {"r": torch.tensor([0.75, 0.75])}, (x,))
    assert_close(replaced.exp().flatten(), torch.tensor([0.75, 0.75], dtype=torch.float64))
    assert is_that_of(pickle.loads(pickle.dumps(copied)).double(), 0.125, 1.0)
