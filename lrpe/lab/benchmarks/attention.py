"""``lrpe bench attention``: the sums, their memory, the attention block and a decoding step, each against its peers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lrpe.attention.feature_map import elu_plus_one
from lrpe.attention.functional import linear_attention
from lrpe.attention.normalizer import PlainDelta
from lrpe.attention.state import DecodingState
from lrpe.attention.summation import Causal, one_token
from lrpe.attention.sums.bidirectional import bidirectional_sums
from lrpe.attention.sums.causal import causal_sums
from lrpe.attention.sums.naive import naive_sums
from lrpe.attention.sums.problem import Problem
from lrpe.encodings.family import encoding
from lrpe.lab.benchmarks import block, token_dependent
from lrpe.lab.benchmarks.agreement import Agreement, check_agreement, largest_difference
from lrpe.lab.benchmarks.lines import Line, collect, forward_and_backward, judge, missing_line, time_beside
from lrpe.lab.benchmarks.measurement import Measurement
from lrpe.lab.benchmarks.memory import peak_allocated
from lrpe.lab.benchmarks.peers import (
    Sum,
    SumPeer,
    causal_peers,
    softmax_causal,
    softmax_everywhere,
    softmax_written_out,
)
from lrpe.lab.benchmarks.process import read_settings
from lrpe.lab.benchmarks.timing import warn_if_busy
from lrpe.lab.stamp import stamp


@torch.no_grad()
def measure_steps(heads: int, dim: int, goals: dict[int, float], rounds: int) -> Iterator[Line]:
    """Yield the sum alone, which is what SDPA computes, and the whole step with φ, Type 2 and Δ."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, heads, 1, dim, generator=generator)
    S, z = torch.randn(1, heads, dim, dim, generator=generator), torch.rand(1, heads, dim, generator=generator)
    encode, phi, normalizer, summation = encoding("type2", dim), elu_plus_one, PlainDelta(), Causal()

    for context, goal in goals.items():
        keys, values = torch.randn(2, 1, heads, context, dim, generator=generator)
        state = DecodingState(S, z, torch.tensor([context]))

        def softmax(keys: Tensor = keys, values: Tensor = values):
            return softmax_everywhere(q, keys, values)

        def step():
            return one_token(Problem(q, k, v, S=S))

        def whole(state: DecodingState = state):
            return linear_attention(q, k, v, encode, phi, normalizer, summation=summation, decay=None, state=state)

        at = f"context {context}"
        yield time_beside("decoding step ÷ SDPA with a static cache", at, goal, step, softmax, rounds)
        yield time_beside("whole decoding step, Type 2 ÷ SDPA with a static cache", at, None, whole, softmax, rounds)


def check_steps(heads: int, dim: int) -> Iterator[Agreement]:
    """Check the last of 65 tokens: a step against the n × n sum, and SDPA against softmax written out."""
    x = torch.randn(3, 1, heads, 65, dim, generator=torch.Generator().manual_seed(0))
    yield check_agreement(("decoding step", "its matrix"), (_last_by_step, _last_by_matrix), x, 1e-4, "sums")
    yield check_agreement(("SDPA", "its matrix"), (_last_by_softmax, _last_written_out), x, 1e-4, "softmax")


def _last_by_step(x: Tensor) -> Tensor:
    q, k, v = x.unbind(0)
    S = k[:, :, :-1].mT @ v[:, :, :-1]
    return one_token(Problem(q[:, :, -1:], k[:, :, -1:], v[:, :, -1:], S=S)).out


def _last_by_matrix(x: Tensor) -> Tensor:
    q, k, v = x.unbind(0)
    return naive_sums(Problem(q, k, v)).out[:, :, -1:]


def _last_by_softmax(x: Tensor) -> Tensor:
    return softmax_everywhere(x[0, :, :, -1:], x[1], x[2])


def _last_written_out(x: Tensor) -> Tensor:
    return softmax_written_out(*x.unbind(0), causal=True)[:, :, -1:]


_Goals = dict[int, float]  # by length

CAUSAL, _BIDIRECTIONAL = "causal forward + backward", "bidirectional forward + backward"
_TOLERANCE = 1e-4  # relative, for float32 sums of thousands of terms


@dataclass(frozen=True)
class Sizes:
    """The shape of q, k and v (batch 1), and the goal of each row by sequence length."""

    heads: int
    dim: int
    chunk_form: _Goals
    product: _Goals
    causal_softmax: _Goals
    memory: _Goals
    softmax: _Goals
    step: _Goals
    token_dependent: dict[str, _Goals]
    block: block.BlockSizes


FULL = Sizes(
    heads=8,
    dim=64,
    chunk_form={2048: 0.70, 8192: 0.68},
    product={2048: 0.80, 8192: 0.78},
    causal_softmax={512: 0.25, 2048: 0.10, 8192: 0.035},
    memory={2048: 6, 8192: 6},
    softmax={512: 0.17, 2048: 0.045},
    step={8192: 0.07, 32768: 0.012},
    token_dependent={
        "gated decay": {512: 1.15, 2048: 1.15, 8192: 1.15},
        "selective steps": {512: 1.3, 2048: 1.3, 8192: 1.3},
    },
    block=block.FULL,
)
QUICK = Sizes(
    heads=2,
    dim=16,
    chunk_form={64: 0.70, 128: 0.68},
    product={64: 0.80, 128: 0.78},
    causal_softmax={32: 0.25, 64: 0.10, 128: 0.035},
    memory={64: 6, 128: 6},
    softmax={32: 0.17, 64: 0.045},
    step={64: 0.07, 128: 0.012},
    token_dependent={"gated decay": {64: 1.15}, "selective steps": {64: 1.3}},
    block=block.QUICK,
)


@dataclass(frozen=True)
class AttentionResult(Measurement):
    benchmark = "attention"
    agreements: list[Agreement]

    def title(self) -> list[str]:
        return [
            "Attention in float32: our time ÷ the peer's time; lower is better.",
            f"Medians of {self.rounds} interleaved rounds, quartiles in brackets.",
        ]

    def remarks(self) -> list[str]:
        return [
            "Before timing, all implementations gave the right outputs and gradients to a relative "
            f"{largest_difference(self.agreements):.0e}.",
            *_ABOUT_SUMS,
            *block.ABOUT_BLOCKS,
            *token_dependent.ABOUT,
            "'decoding step' is the sum alone, as in SDPA: S ← S + k vᵀ and q S; 'whole' adds φ, the encoding and Δ.",
            *absent(self.lines),
            *warn_if_busy(min(line.processor_share for line in self.lines)),
        ]


_ABOUT_SUMS = (
    "SDPA is softmax attention, another function for the same task; both were checked against their n × n matrix.",
    "Extra memory is everything allocated beyond q, k, v and the gradient of the output. The output and the gradients",
    "of q, k and v are four of the counted tensors.",
)


def absent(lines: Sequence[Line]) -> list[str]:
    """Say which peers are not installed and how to install them."""
    names = sorted({line.row.partition(" ÷ ")[2] for line in lines if line.verdict == "missing"})
    if not names:
        return []
    return [
        f"missing: {' and '.join(names)} not installed. fla-core comes with pip install 'lrpe[bench]'; "
        "pytorch-fast-transformers must be built from its source."
    ]


def measure(quick: bool = False, rounds: int | None = None) -> AttentionResult:
    """Check every implementation against its specification, then time them; ``quick`` uses tiny shapes."""
    rounds = rounds or (2 if quick else 15)
    sizes = QUICK if quick else FULL
    marks = stamp("fla-core", "pytorch-fast-transformers")
    peers = causal_peers()
    agreements = [*check_sums(sizes, peers), *block.check_blocks(sizes.block), *check_steps(sizes.heads, sizes.dim)]
    agreements += token_dependent.check_token_dependent(sizes.heads, sizes.dim)
    lines = collect(measure_lines(sizes, peers, rounds))
    return AttentionResult(quick, rounds, read_settings(), marks, lines, agreements)


def measure_lines(sizes: Sizes, peers: list[SumPeer], rounds: int) -> Iterator[Line]:
    for peer in peers:
        goals = sizes.product if "C++" in peer.name else sizes.chunk_form
        yield from measure_sum(CAUSAL, our_causal, peer.name, peer.sum, goals, sizes, rounds)
    yield from measure_sum(CAUSAL, our_causal, "SDPA", softmax_causal, sizes.causal_softmax, sizes, rounds)
    for n, goal in sizes.memory.items():
        yield measure_memory(n, goal, sizes)
    yield from measure_sum(_BIDIRECTIONAL, our_sum, "SDPA", softmax_everywhere, sizes.softmax, sizes, rounds)
    yield from block.measure_blocks(sizes.block, rounds)
    yield from measure_steps(sizes.heads, sizes.dim, sizes.step, rounds)
    yield from token_dependent.measure_token_dependent(sizes.heads, sizes.dim, sizes.token_dependent, rounds)


def our_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return causal_sums(Problem(q, k, v)).out


def our_sum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return bidirectional_sums(Problem(q, k, v, causal=False)).out


def measure_sum(
    row: str, ours: Sum, name: str, theirs: Sum | None, goals: _Goals, sizes: Sizes, rounds: int
) -> Iterator[Line]:
    for n, goal in goals.items():
        if theirs is None:
            yield missing_line(f"{row} ÷ {name}", f"N = {n}", goal)
            continue
        qkv = draw(n, sizes)
        our_run, their_run = (forward_and_backward(side, *qkv) for side in (ours, theirs))
        yield time_beside(f"{row} ÷ {name}", f"N = {n}", goal, our_run, their_run, rounds)


def measure_memory(n: int, goal: float, sizes: Sizes) -> Line:
    """Count the extra memory in N × d tensors; the output and the gradients of q, k and v are four of them."""
    qkv = draw(n, sizes)
    tensors = peak_allocated(forward_and_backward(our_causal, *qkv)) / qkv[0].nbytes
    return Line(f"{CAUSAL}, extra memory in N × d tensors", f"N = {n}", goal, judge(tensors, goal), tensors)


def draw(n: int, sizes: Sizes) -> Tensor:
    """Return q, k and v in one tensor, (3, 1, heads, n, d)."""
    return torch.randn(3, 1, sizes.heads, n, sizes.dim, generator=torch.Generator().manual_seed(0))


def check_sums(sizes: Sizes, peers: list[SumPeer]) -> Iterator[Agreement]:
    """Check our sums against the n × n specification, the peers against ours, and SDPA against softmax written out."""
    few = draw(min(512, max(sizes.causal_softmax)), sizes)
    for causal, ours, softmax in ((True, our_causal, softmax_causal), (False, our_sum, softmax_everywhere)):
        name = "causal sum" if causal else "bidirectional sum"
        specified = [on_stack(quadratic, causal), on_stack(softmax_written_out, causal)]
        yield check_agreement((name, "its matrix"), (on_stack(ours), specified[0]), few, _TOLERANCE, "sums")
        yield check_agreement(("SDPA", "its matrix"), (on_stack(softmax), specified[1]), few, _TOLERANCE, "softmax")
    for peer in (peer for peer in peers if peer.sum is not None):
        for n in sizes.product if "C++" in peer.name else sizes.chunk_form:
            sides = (on_stack(our_causal), on_stack(peer.sum))
            yield check_agreement(("causal sum", peer.name), sides, draw(n, sizes), _TOLERANCE, f"sums of {n}")


def quadratic(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    return naive_sums(Problem(q, k, v, causal=causal)).out


def on_stack(compute: Any, *rest: Any):
    """Turn a function of q, k and v into a function of the tensor that stacks them."""
    return lambda x: compute(*x.unbind(0), *rest)
