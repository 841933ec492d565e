"""The specification itself, against the formula in plain Python loops."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from lrpe import OutputNorm, PlainDelta, Quadratic
from tests.attention.choices import CHOICES, DECAYS, ENCODINGS, HEADS, KEY_HEADS, WIDTH, Choice
from tests.attention.frames import Frame, Start, solve
from tests.encodings.compositions import features, seeds


def weight(frame, b, h, t, s):
    """w_ts = r^|p_t - p_s| within a sequence, 0 across."""
    row = 0 if frame.positions is None or len(frame.positions) == 1 else b
    p = (lambda i: i) if frame.positions is None else (lambda i: frame.positions[row, i].item())
    if frame.sequences is not None and frame.sequences[0, t] != frame.sequences[0, s]:
        return 0.0
    return 1.0 if frame.decay is None else frame.decay[h].item() ** abs(p(t) - p(s))


def loops(q, k, v, frame, causal):
    """Σ_s w_ts (q_t·k_s) v_s and Σ_s w_ts (q_t·k_s), one number after another."""
    (batch, heads, n, _), e = q.shape, v.shape[-1]
    out, total = torch.zeros(batch, heads, n, e, dtype=q.dtype), torch.zeros(batch, heads, n, 1, dtype=q.dtype)
    for b in range(batch):
        for h in range(heads):
            g = h // (heads // k.shape[1])
            for t in range(n):
                for s in range(t + 1 if causal else k.shape[2]):
                    score = weight(frame, b, g, t, s) * sum(x * y for x, y in zip(q[b, h, t], k[b, g, s], strict=True))
                    out[b, h, t] += score * v[b, g, s]
                    total[b, h, t] += score
    return out, total


def recurrence(k, v, frame, S, z, gap):
    """The last state, token by token: S ← r^(p_t - p_{t-1}) S + k_t v_tᵀ, and nothing of S where a sequence begins."""
    S, z = S.clone(), z.clone()
    for b in range(len(k)):
        for g in range(k.shape[1]):
            for t in range(k.shape[2]):
                fade = weight(frame, b, g, t, t - 1) if t else weight(frame, b, g, 0, 0)
                if t == 0 and frame.decay is not None:
                    fade = frame.decay[g].item() ** gap[b].item()
                S[b, g] = fade * S[b, g] + torch.outer(k[b, g, t], v[b, g, t])
                z[b, g] = fade * z[b, g] + k[b, g, t]
    return S, z


@settings(max_examples=12)
@given(
    n=st.integers(1, 5),
    decay=st.sampled_from([None, [0.3, 0.95]]),
    gaps=st.booleans(),
    packed=st.booleans(),
    causal=st.booleans(),
    seed=seeds,
)
def test_the_specification_is_the_formula_written_out(n, decay, gaps, packed, causal, seed):
    q, k, v = features(2, 4, n, 3, seed=seed), features(2, 2, n, 3, seed=seed + 1), features(2, 2, n, 2, seed=seed + 2)
    steps = torch.randint(1, 4, (2, n), generator=torch.Generator().manual_seed(seed % 2**31))
    frame = Frame(
        None if decay is None else torch.tensor(decay, dtype=torch.float64),
        steps.cumsum(-1) - 3 if gaps else None,
        (torch.arange(n) >= n // 2).long()[None] if packed else None,
    )
    sums = solve(Quadratic(causal), q, k, v, frame, total=True)
    assert_close((sums.out, sums.delta), loops(q, k, v, frame, causal), rtol=1e-12, atol=1e-12)
    if causal:
        empty = torch.zeros(2, 2, 3, 2, dtype=q.dtype), torch.zeros(2, 2, 3, dtype=q.dtype)
        expected = recurrence(k, v, frame, *empty, torch.ones(2))
        assert_close((sums.S, sums.z), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gap", [0, 1, 5])
@pytest.mark.parametrize("decay", [None, [0.3, 0.95]])
def test_an_initial_state_is_a_key_sum_that_stands_before_the_first_token(decay, gap):
    """A state of one key is that key, ``gap`` before the rest."""
    q, k, v = features(1, 4, 5, 3), features(1, 2, 5, 3, seed=1), features(1, 2, 5, 2, seed=2)
    decay = None if decay is None else torch.tensor(decay, dtype=torch.float64)
    whole = solve(Quadratic(), q, k, v, Frame(decay, torch.tensor([[0, *range(gap, gap + 4)]])), total=True)
    start = Start(k[:, :, 0, :, None] * v[:, :, 0, None], k[:, :, 0], torch.tensor([gap]))
    after = solve(Quadratic(), q[:, :, 1:], k[:, :, 1:], v[:, :, 1:], Frame(decay), total=True, start=start)
    expected = (whole.out[:, :, 1:], whole.delta[:, :, 1:], whole.S, whole.z)
    assert_close(tuple(after), expected, rtol=1e-12, atol=1e-12)


def by_hand(layer, x, causal):
    """o_t = N(Σ_s r^|t-s| (M_t φ(q_t))·(M_s φ(k_s)) v_s), with every token encoded by itself."""
    q, k, v = layer.project(x, x)
    n, group, encode, phi = x.shape[1], HEADS // KEY_HEADS, layer.encoding, layer.phi

    def encoded(vectors, side, t):
        table = encode.table(torch.tensor([t]), x.dtype)
        of_side = encode.query if side == "q" else encode.key
        one = vectors[:, :, t : t + 1]
        features = phi(of_side(one, table)) if encode.acts == "before" else of_side(phi(one), table)
        return features[0, :, 0], phi(one)[0, :, 0]

    sums = torch.zeros(1, HEADS, n, v.shape[-1], dtype=x.dtype)
    delta = torch.zeros(1, HEADS, n, 1, dtype=x.dtype)
    for t in range(n):
        q_t = encoded(q, "q", t)
        for s in range(t + 1 if causal else n):
            k_s = encoded(k, "k", s)
            for h in range(HEADS):
                g = h // group
                r = 1.0 if layer.decay is None else layer.decay.r[g].item() ** abs(t - s)
                score, plain = (r * (a[h] @ b[g]) for a, b in zip(q_t, k_s, strict=True))
                sums[0, h, t] += score * v[0, g, s]
                delta[0, h, t] += plain if isinstance(layer.normalizer, PlainDelta) else score
    if isinstance(layer.normalizer, OutputNorm):
        joined = sums.transpose(1, 2).flatten(2)
        return layer.o_proj(
            (joined - joined.mean(-1, keepdim=True)) / (joined.var(-1, False, keepdim=True) + 1e-5).sqrt()
        )
    return layer.o_proj((sums / delta).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("i", range(len(ENCODINGS)), ids=list(ENCODINGS))
def test_the_layer_is_its_equation_written_out(i, causal):
    name = list(ENCODINGS)[i]
    choice = Choice(name, ("plain", "encoded", "output")[i % 3], "none" if name == "per" else list(DECAYS)[i % 2])
    assert choice in CHOICES
    layer, x = choice.build(Quadratic(causal)), features(1, 4, WIDTH)
    with torch.no_grad():
        assert_close(layer(x), by_hand(layer, x, causal), rtol=1e-8, atol=1e-9)
