"""``lrpe bench block``: φ, P, Λ, the sum and the normaliser of each encoding ÷ those of Base (no P and Λ)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import elu

from lrpe.attention.choices import Bidirectional, Quadratic
from lrpe.attention.feature_map import elu_plus_one
from lrpe.attention.functional import linear_attention
from lrpe.attention.normalizer import Normalizer, choose_normalizer
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.encodings.family import encoding
from lrpe.lab.benchmarks.agreement import Agreement, check_agreement, largest_difference
from lrpe.lab.benchmarks.device import place
from lrpe.lab.benchmarks.lines import Call, Line, collect, forward_and_backward, line_of, time_beside
from lrpe.lab.benchmarks.measurement import Measurement
from lrpe.lab.benchmarks.peers import Sum
from lrpe.lab.benchmarks.process import read_settings
from lrpe.lab.benchmarks.timing import Timed, interleave, warn_if_busy
from lrpe.lab.stamp import stamp
from lrpe.positions import sequence

GOALS = {"RoPE": 1.08, "Type 1": 1.5, "Type 2": 1.05, "Type 3": 1.15}
NAMES = {"RoPE": "rope", "Type 1": "type1", "Type 2": "type2", "Type 3": "type3"}
BASE_GOAL = 1.05  # Base has a goal too: a slow Base would flatter every other ratio
_HAS_ANGLES = ("RoPE", "Type 1", "Type 2")
PHI, _SUMMATION = elu_plus_one, Bidirectional()


@dataclass(frozen=True)
class BlockSizes:
    shape: tuple[int, int, int, int]  # batch, heads, n, head_dim
    goals: dict[str, float] = field(default_factory=lambda: dict(GOALS))


FULL, QUICK = BlockSizes((4, 8, 512, 64)), BlockSizes((2, 2, 32, 16))
_ABOUT = (
    "A block is φ, P, Λ, the bidirectional sum and the normaliser, from q, k, v on; Base has no P and Λ.",
    "'Base's by hand' is the fastest Base that we can write; it shows that Base itself is not slow.",
    "A block with a goal has fixed α and computes its table in the call, once for q and k, as a layer does.",
)


@dataclass(frozen=True)
class _BlockResult(Measurement):
    benchmark = "block"
    agreements: list[Agreement]

    def title(self) -> list[str]:
        return [
            "The attention block of each encoding, forward + backward in float32: time ÷ Base's; lower is better.",
            f"Medians of {self.rounds} interleaved rounds, quartiles in brackets.",
        ]

    def remarks(self) -> list[str]:
        return [
            "Before timing, all blocks gave the outputs and gradients of their n × n matrix to a relative "
            f"{largest_difference(self.agreements):.0e}.",
            *_ABOUT,
            *warn_if_busy(min(line.processor_share for line in self.lines)),
        ]


def measure(quick: bool = False, rounds: int | None = None) -> _BlockResult:
    """Check every block against its n × n matrix, then time it against Base's; ``quick`` uses tiny shapes."""
    rounds, sizes, marks = rounds or (2 if quick else 15), QUICK if quick else FULL, stamp()
    agreements = list(check_blocks(sizes))
    return _BlockResult(quick, rounds, read_settings(), marks, collect(measure_blocks(sizes, rounds)), agreements)


def measure_blocks(sizes: BlockSizes, rounds: int) -> Iterator[Line]:
    """Yield the blocks under PlainDelta with their goals; then with ready tables, learned α, and an output norm."""
    at = "×".join(map(str, sizes.shape))
    qkv = draw(sizes)
    by_hand = forward_and_backward(base_by_hand, *qkv)
    plain, output = (place(choose_normalizer(name, sizes.shape[1], sizes.shape[3])) for name in ("plain", "output"))
    runs = {f"block, {kind}": _block_run(fixed(kind, sizes), plain, qkv) for kind in NAMES}
    others = {f"block, {kind}, table ready": _block_run(ready(kind, sizes), plain, qkv) for kind in NAMES}
    others |= {f"block, {kind}, learned α": _block_run(learned(kind, sizes), plain, qkv) for kind in _HAS_ANGLES}
    timing = interleave([Timed(name, run) for name, run in (runs | others).items()], _base_run(plain, qkv), rounds)
    yield time_beside("block, Base ÷ Base's by hand", at, BASE_GOAL, _base_run(plain, qkv), by_hand, rounds)
    for kind, goal in sizes.goals.items():
        yield line_of(timing, f"block, {kind}", f"block, {kind} ÷ Base's, table made in the call", at, goal)
    for name in others:
        yield line_of(timing, name, f"{name} ÷ Base's", at, None)
    normed = {f"block, {kind}": _block_run(fixed(kind, sizes), output, qkv) for kind in NAMES}
    timing = interleave([Timed(name, run) for name, run in normed.items()], _base_run(output, qkv), rounds)
    for name in normed:
        yield line_of(timing, name, f"{name} ÷ Base's, under an output norm", at, None)


def check_blocks(sizes: BlockSizes) -> Iterator[Agreement]:
    """Check every block against the n × n sum with φ written as it is defined."""
    qkv = draw(sizes)
    for name, encode in {"Base": base(sizes), **{kind: fixed(kind, sizes) for kind in NAMES}}.items():
        sides = (on_stack(block(encode)), on_stack(specified(encode)))
        yield check_agreement((f"block, {name}", "its matrix"), sides, qkv, 1e-4, "outputs of the block")
    sides = (on_stack(base_by_hand), on_stack(block(base(sizes))))
    yield check_agreement(("Base by hand", "block, Base"), sides, qkv, 1e-4, "outputs of the block")


def block(encode: PositionalEncoding, normalizer: str | Normalizer = "plain") -> Sum:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return linear_attention(q, k, v, encode, PHI, normalizer, summation=_SUMMATION, decay=None)[0]

    return attend


def specified(encode: PositionalEncoding) -> Sum:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        how = Quadratic(causal=False)
        return linear_attention(q, k, v, encode, lambda x: elu(x) + 1, "plain", summation=how, decay=None)[0]

    return attend


def base_by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _BaseByHand.apply(q, k, v)


class _BaseByHand(torch.autograd.Function):
    """φ(q) Σ φ(k) vᵀ ÷ φ(q)·Σ φ(k) and its gradient, in as few passes over memory as torch allows."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        Q, K = (x.clamp(max=0).exp_().add_(x.clamp(min=0)) for x in (q, k))
        S, z = K.mT @ v, K.sum(-2, keepdim=True)
        scale = (Q @ z.mT).clamp_(min=1e-6).reciprocal_()
        out = (Q @ S).mul_(scale)
        ctx.save_for_backward(Q, K, v, S, z, scale, out)
        return out

    @staticmethod
    def backward(ctx, *grads: Tensor):
        Q, K, v, S, z, scale, out = ctx.saved_tensors
        g = grads[0] * scale
        g_delta = (g * out).sum(-1, keepdim=True).neg_()
        dS = Q.mT @ g
        dq = (g @ S.mT).addcmul_(g_delta, z).mul_(Q.clamp(max=1))
        dk = (v @ dS.mT).add_(g_delta.mT @ Q).mul_(K.clamp(max=1))
        return dq, dk, K @ dS


def _block_run(encode: PositionalEncoding, normalizer: Normalizer, qkv: Tensor) -> Call:
    learned_here = [*encode.parameters(), *normalizer.parameters()]
    return forward_and_backward(block(encode, normalizer), *qkv, learned=learned_here)


def _base_run(normalizer: Normalizer, qkv: Tensor) -> Call:
    return _block_run(place(encoding("none", qkv.shape[-1])), normalizer, qkv)


def base(sizes: BlockSizes) -> PositionalEncoding:
    return place(encoding("none", sizes.shape[-1]))


def fixed(kind: str, sizes: BlockSizes) -> PositionalEncoding:
    angles = {"learned_angles": False} if kind in _HAS_ANGLES else {}
    return place(encoding(NAMES[kind], sizes.shape[-1], seed=0, **angles))  # one seed, so that all have the same P


def learned(kind: str, sizes: BlockSizes) -> PositionalEncoding:
    return place(encoding(NAMES[kind], sizes.shape[-1], seed=0, learned_angles=True))


def ready(kind: str, sizes: BlockSizes) -> PositionalEncoding:
    """Return an encoding whose table is computed outside the timed call."""
    encode = fixed(kind, sizes)
    table = encode.table(place(sequence(sizes.shape[2])))
    encode.table = lambda positions, dtype=torch.float32: table
    return encode


def draw(sizes: BlockSizes) -> Tensor:
    return place(torch.randn(3, *sizes.shape, generator=torch.Generator().manual_seed(0)))


def on_stack(compute: Sum):
    return lambda x: compute(*x.unbind(0))
