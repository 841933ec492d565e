"""One answer, however it is computed: by the specification, in chunks, from a state, packed, padded."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import Bidirectional, Causal, LinearAttention, Quadratic, encoding, spread_decay

ENCODINGS = (
    "none",
    "type1",
    "type2",
    "type3",
    "rope",
    "rope-half",
    "mixed",
    "cosformer",
    "per",
    "spe",
    "fourier*unitary",
)
NORMALIZERS = ("plain", "encoded", "output", "output-rms-head")
WIDTH, HEADS, KEY_HEADS, N = 24, 4, 2, 19

every = pytest.mark.parametrize(
    ("name", "normalizer", "decays"),
    [(name, norm, decays) for name in ENCODINGS for norm in NORMALIZERS for decays in (False, True)],
)


def layer(name, normalizer, decays, summation):
    """A layer in float64 and evaluation; PermuteFormer brings its own decay."""
    needed = {"length": 64} if name == "cosformer" else {"heads": KEY_HEADS} if name in ("per", "spe") else {}
    chosen = encoding(name, WIDTH // HEADS, **needed)
    decay = spread_decay(KEY_HEADS) if decays and name != "per" else None
    torch.manual_seed(0)
    made = LinearAttention(
        WIDTH, HEADS, chosen, KEY_HEADS, normalizer=normalizer, decay=decay, summation=summation, value_dim=5
    )
    return made.double().eval()


def tokens(batch=2, n=N):
    return torch.randn(batch, n, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def sums_and_gradients(attention, x):
    """The output, and the gradients of x and of all that is learned."""
    x = x.clone().requires_grad_()
    out = attention(x)
    learned = [x, *(parameter for parameter in attention.parameters() if parameter.requires_grad)]
    weights = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
    gradients = torch.autograd.grad((out * weights).sum(), learned, allow_unused=True)
    return [out, *(g for g in gradients if g is not None)]


def same(found, expected):
    """Equal to 1e-8 of the largest entry; |Δ| can be small where the paper's Δ divides, and magnifies rounding."""
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, rtol=0, atol=1e-8 * max([1.0, *b.detach().abs().flatten().tolist()]))


@every
@pytest.mark.parametrize("causal", [True, False])
def test_chunks_give_the_specification_and_its_gradients(name, normalizer, decays, causal):
    fast = layer(name, normalizer, decays, Causal(chunk=8) if causal else Bidirectional(chunk=8))
    slow = layer(name, normalizer, decays, Quadratic(causal=causal))
    same(sums_and_gradients(fast, tokens()), sums_and_gradients(slow, tokens()))


@every
def test_a_prefix_and_steps_give_the_whole_pass(name, normalizer, decays):
    attention, x = layer(name, normalizer, decays, Causal(chunk=8)), tokens()
    for cut in (0, 1, 11):
        out, state = attention.prefill(x[:, :cut]) if cut else (x[:, :0], attention.initial_state(len(x)))
        shapes = [tensor.shape for tensor in state]
        outs = [out] if cut else []
        for t in range(cut, N):
            step, state = attention.step(x[:, t], state)
            outs.append(step[:, None])
            assert [tensor.shape for tensor in state] == shapes
        same([torch.cat(outs, 1)], [attention(x)])
        same(state[:2], attention.prefill(x)[1][:2])
        assert state.position.tolist() == [N, N]


@every
def test_packed_sequences_give_each_its_own_answer_and_state(name, normalizer, decays):
    attention, x = layer(name, normalizer, decays, Causal(chunk=8)), tokens()
    (first, state), (second, other) = attention.prefill(x[:1, :7]), attention.prefill(x[1:, :12])
    packed = torch.cat([x[:1, :7], x[1:, :12]], 1)
    out, states = attention.prefill(packed, cu_seqlens=torch.tensor([0, 7, 19]))
    same([out], [torch.cat([first, second], 1)])
    same(states[:2], [torch.cat(parts) for parts in zip(state[:2], other[:2], strict=True)])
    assert states.position.tolist() == [7, 12]


@every
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_gives_the_unpadded_answer_and_state(name, normalizer, decays, side):
    attention, x = layer(name, normalizer, decays, Causal(chunk=8)), tokens()
    alone, state = attention.prefill(x[:1, :7])
    real = slice(N - 7, N) if side == "left" else slice(0, 7)
    padded, mask = torch.full_like(x, 3.0), torch.zeros(2, N, dtype=torch.bool)
    padded[0, real], padded[1] = x[0, :7], x[1]
    mask[0, real] = mask[1] = True
    out, after = attention.prefill(padded, mask=mask)
    same([out[:1, real]], [alone])
    same([part[:1] for part in after[:2]], state[:2])
    assert after.position.tolist() == [7, N]
    both = layer(name, normalizer, decays, Bidirectional(chunk=8))
    same([both(padded, mask=mask)[:1, real]], [both(x[:1, :7])])
