"""Steps per token: token τ turns by u_τ·α, in the function and in the layers that learn it."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import LinearAttention, LrpeError, Quadratic, SoftmaxAttention, encoding, linear_attention
from lrpe.attention import Steps
from tests.attention.choices import token_dependent
from tests.encodings.compositions import features

HEADS, KEY_HEADS, D = 4, 2, 6
BASES = ("type1", "type2", "rope", "fourier*unitary")


def vectors(n=7, batch=2):
    return [features(batch, heads, n, D, seed=i) for i, heads in enumerate((HEADS, KEY_HEADS, KEY_HEADS))]


def draw_steps(n=7, batch=2, angles=None):
    return 1 + features(batch, KEY_HEADS, n, *(() if angles is None else (angles,)), seed=9)


def by_hand(q, k, v, encode, steps, causal):
    """Σ_s Re (Pφ(q_t))ᴴ exp(iα Σ u) Pφ(k_s) v_s / Δ, every angle from the sum of the steps between the two tokens."""
    P = encode.basis.dense()
    alpha = encode.matrix.angles.scaled().reshape(-1)
    phi = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
    out = torch.zeros_like(q)
    for b, h, t in torch.cartesian_prod(*map(torch.arange, q.shape[:3])).tolist():
        g, total = h // (HEADS // KEY_HEADS), 0.0
        for s in range(t + 1 if causal else q.shape[2]):
            between = steps[b, g, min(s, t) + 1 : max(s, t) + 1].sum(0) * (1 if t >= s else -1)
            angle = between * alpha
            if encode.matrix.is_complex:
                W = torch.diag(torch.polar(torch.ones_like(angle), -angle))
            else:
                W = torch.block_diag(
                    *(torch.tensor([[a.cos(), a.sin()], [-a.sin(), a.cos()]]).double() for a in angle)
                ).to(torch.complex128)
            a, c = (P @ x.to(P.dtype) for x in (phi[0][b, h, t], phi[1][b, g, s]))
            out[b, h, t] += (a.conj() @ W.to(P.dtype) @ c).real * v[b, g, s]
            total += phi[0][b, h, t] @ phi[1][b, g, s]
        out[b, h, t] /= total
    return out


@torch.no_grad()
@pytest.mark.parametrize("per_angle", [False, True])
@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
@pytest.mark.parametrize("name", BASES)
def test_the_function_is_its_definition(name, summation, per_angle):
    encode = encoding(name, D, seed=0).double() if name != "rope" else encoding(name, D).double()
    q, k, v = vectors(5)
    steps = draw_steps(5, angles=encode.angle_count if per_angle else None)
    out, _ = linear_attention(q, k, v, encode, steps=steps, summation=summation, decay=None)
    expected = by_hand(q, k, v, encode, steps if per_angle else steps[..., None], summation == "causal")
    assert_close(out, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", BASES)
def test_equal_steps_are_positions(name):
    q, k, v = vectors()
    ones, twos = (torch.full((1, 1, 7), float(u), dtype=torch.float64) for u in (1, 2))
    expected, _ = linear_attention(q, k, v, name, positions=torch.arange(7))
    assert_close(linear_attention(q, k, v, name, steps=ones)[0], expected, rtol=1e-10, atol=1e-10)
    options = {"decay": None}
    expected, _ = linear_attention(q, k, v, name, positions=2 * torch.arange(7), **options)
    assert_close(linear_attention(q, k, v, name, steps=twos, **options)[0], expected, rtol=1e-10, atol=1e-10)


def test_all_gradients_are_those_of_the_n_by_n_formula():
    encode = encoding("type2", D, seed=0, learned_basis=True).double()
    leaves = [*(x.requires_grad_() for x in vectors(70, 1)), draw_steps(70, 1).requires_grad_()]
    log_decay = (-features(1, KEY_HEADS, 70, seed=4).abs()).requires_grad_()
    found = []
    for how in ("causal", Quadratic()):
        out, _ = linear_attention(*leaves[:3], encode, steps=leaves[3], log_decay=log_decay, summation=how)
        found.append(torch.autograd.grad(out.square().sum(), [*leaves, log_decay, *encode.parameters()]))
    assert_close(*found, rtol=1e-9, atol=1e-9)
    assert found[0][3].abs().max() > 1e-6


def test_the_state_carries_the_phase_and_has_one_shape_for_life():
    q, k, v = vectors()
    steps = draw_steps()
    whole, last = linear_attention(q, k, v, "type2", steps=steps)
    for cut in range(1, 7):
        first, state = linear_attention(*(x[:, :, :cut] for x in (q, k, v)), "type2", steps=steps[..., :cut])
        rest, after = linear_attention(
            *(x[:, :, cut:] for x in (q, k, v)), "type2", steps=steps[..., cut:], state=state
        )
        assert_close(torch.cat([first, rest], 2), whole, rtol=1e-10, atol=1e-10)
        assert state.phase.shape == after.phase.shape == (2, KEY_HEADS, 1)
        assert state.phase.dtype == torch.float64
        assert_close(after, last, rtol=1e-10, atol=1e-10)


CROSS = {"attention": "cross", "summation": "bidirectional", "decay": None}
REFUSED = {
    "a permutation": ({"encoding": "type3", "steps": torch.ones(1, 1, 5)}, r"steps need an encoding with angles"),
    "a shape": (
        {"encoding": "rope", "steps": torch.ones(1, 5)},
        r"steps must be real, of shape.*\(1, 2, 5\).*3 angles",
    ),
    "angles": ({"encoding": "rope", "steps": torch.ones(1, 1, 5, 2)}, r"last axis of 3 angles"),
    "no steps": ({"encoding": "selective"}, r"takes its steps from the tokens\. Pass steps="),
    "a context": (CROSS | {"encoding": "rope", "steps": torch.ones(1, 1, 5)}, r"cross-attention has none"),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_steps_is_refused(options, words):
    q = torch.ones(1, 2, 5, D)
    with pytest.raises(LrpeError, match=words):
        linear_attention(q, q, q, **options)


@pytest.mark.parametrize("angles", [None, D // 2])
def test_values_at_padding_have_no_effect(angles):
    q, k, v = vectors()
    mask = torch.tensor([[0, 1, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1, 0]])
    hidden = (mask == 0)[:, None]
    steps, log_decay = draw_steps(angles=angles), -features(2, KEY_HEADS, 7, seed=4).abs()
    options = {"steps": steps, "log_decay": log_decay}
    expected, _ = linear_attention(q, k, v, "type2", mask=mask, **options)
    options["steps"] = steps.masked_fill(hidden if angles is None else hidden[..., None], torch.nan)
    options["log_decay"] = log_decay.masked_fill(hidden, torch.nan).requires_grad_()
    out, _ = linear_attention(q, k, v, "type2", mask=mask, **options)
    assert_close(out[:, :, mask[0] == 1], expected[:, :, mask[0] == 1], rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad(out[:, :, mask[0] == 1].sum(), options["log_decay"])
    assert gradient.isfinite().all()


def test_a_state_without_a_phase_cannot_be_continued_by_steps():
    q, k, v = vectors()
    _, state = linear_attention(q, k, v, "type2")
    with pytest.raises(LrpeError, match="phase if, and only if, the steps depend on the tokens"):
        linear_attention(q, k, v, "type2", steps=draw_steps(), state=state)


# Layers


@pytest.mark.parametrize("name", ["selective", "selective-free"])
@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
def test_a_selective_layer_begins_as_type_2(kind, name):
    x = features(2, 6, 8, dtype=torch.float32)
    torch.manual_seed(0)
    fixed = kind(8, 2, "type2")
    torch.manual_seed(0)
    layer = kind(8, 2, name)
    assert_close(layer(x), fixed(x), rtol=1e-5, atol=1e-6)
    positions = torch.tensor([0, 2, 3, 7, 8, 20])
    assert_close(layer(x, positions=positions), fixed(x, positions=positions), rtol=1e-5, atol=1e-6)
    assert torch.autograd.grad(layer(x).square().sum(), layer.steps.weight)[0].abs().max() > 0


@pytest.mark.parametrize("name", ["selective", "selective-free"])
@pytest.mark.parametrize("decay", [None, "gated"])
@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
def test_prefill_and_steps_give_the_whole_pass_cut_anywhere(kind, decay, name):
    layer, x = token_dependent(kind, name, decay=decay), features(2, 7, 8)
    whole, state = layer(x), layer.initial_state(2)
    for cut in (0, 3, 6):
        y, later = layer.prefill(x[:, :cut], state)
        outputs = [y]
        for token in x[:, cut:].unbind(1):
            y, later = layer.step(token, later)
            outputs.append(y[:, None])
        assert_close(torch.cat(outputs, 1), whole, rtol=1e-10, atol=1e-10)
        assert later.phase.shape == state.phase.shape


@pytest.mark.parametrize("name", ["selective", "selective-free"])
@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
def test_no_tokens_leave_the_first_state(kind, name):
    layer, x = token_dependent(kind, name), features(2, 3, 8)
    _, state = layer.prefill(x[:, :0])
    assert_close(state, layer.initial_state(2), rtol=0, atol=0)
    assert_close(layer.prefill(x, state)[0], layer(x), rtol=1e-10, atol=1e-10)


FOREIGN_STATES = {
    "no phase": ({"encoding": "type2"}, {"encoding": "selective"}, "phase if, and only if, the steps"),
    "a phase": ({"encoding": "selective"}, {"encoding": "type2"}, "phase if, and only if, the steps"),
    "a phase per head": (
        {"encoding": "selective"},
        {"encoding": "selective-free"},
        r"state.phase must have shape .* = \(2, 2, 2\); got \(2, 2, 1\)",
    ),
}


@pytest.mark.parametrize(("made", "continued", "words"), FOREIGN_STATES.values(), ids=FOREIGN_STATES)
@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
def test_the_state_of_another_layer_is_refused(kind, made, continued, words):
    x = torch.ones(2, 3, 8)
    _, state = kind(8, 2, **made).prefill(x)
    with pytest.raises(LrpeError, match=words):
        kind(8, 2, **continued).prefill(x, state)


@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
def test_padding_takes_no_step_and_packed_sequences_start_anew(kind, summation):
    layer, x = token_dependent(kind, "selective", decay=None, summation=summation), features(1, 7, 8)
    alone = torch.cat([layer(x[:, :3]), layer(x[:, 3:])], 1)
    assert_close(layer(x, cu_seqlens=torch.tensor([0, 3, 7])), alone, rtol=1e-10, atol=1e-10)
    mask = torch.tensor([[0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 0]])
    padded = 10 * features(1, 11, 8, seed=3)
    padded[mask.bool()] = x[0]
    assert_close(layer(padded, mask=mask)[mask.bool()], layer(x)[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", [LinearAttention, SoftmaxAttention])
def test_padding_after_a_state_takes_no_step_and_no_decay(kind):
    """The step from the state to the first new token is that token's own, however much padding is before it."""
    layer, x = token_dependent(kind, "selective", decay="gated"), features(1, 7, 8)
    positions = torch.tensor([0, 2, 3, 7, 8, 20, 21])
    _, state = layer.prefill(x[:, :3], positions=positions[:3])
    padded = torch.cat([10 * features(1, 2, 8, seed=3), x[:, 3:]], 1)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]])
    y, after = layer.prefill(padded, state, torch.cat([torch.zeros(2, dtype=torch.long), positions[3:]]), mask)
    assert_close(y[:, 2:], layer(x, positions=positions)[:, 3:], rtol=1e-10, atol=1e-10)
    assert_close(after.phase, layer.prefill(x, positions=positions)[1].phase, rtol=1e-10, atol=1e-10)


def test_packed_sequences_leave_their_own_phases():
    layer, x = token_dependent(LinearAttention, "selective"), features(1, 7, 8)
    _, states = layer.prefill(x, cu_seqlens=torch.tensor([0, 3, 3, 7]))
    token = features(3, 8, seed=5)
    together, _ = layer.step(token, states)
    for row, text in enumerate((x[:, :3], x[:, :0], x[:, 3:])):
        _, alone = layer.prefill(text, layer.initial_state(1))
        assert_close(together[row : row + 1], layer.step(token[row : row + 1], alone)[0], rtol=1e-9, atol=1e-9)


def test_a_masked_row_keeps_its_phase():
    layer, x = token_dependent(LinearAttention, "selective"), features(2, 5, 8)
    _, state = layer.prefill(x[:, :4])
    _, after = layer.step(x[:, 4], state, mask=torch.tensor([True, False]))
    assert_close(after.phase[1], state.phase[1], rtol=0, atol=0)
    assert (after.phase[0] != state.phase[0]).any()


def test_steps_per_head_and_per_angle_have_their_shapes():
    assert Steps(8, 2)(features(3, 5, 8)).shape == (3, 2, 5)
    assert Steps(8, 2, 4)(features(3, 5, 8)).shape == (3, 2, 5, 4)
