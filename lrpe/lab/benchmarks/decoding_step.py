"""One decoding step, whose cost does not depend on the context, ÷ SDPA over a static cache of keys and values."""

from collections.abc import Iterator

import torch
from torch import Tensor

from lrpe.attention.feature_map import EluPlusOne
from lrpe.attention.functional import linear_attention
from lrpe.attention.normalizer import PlainDelta
from lrpe.attention.quadratic import quadratic_sum
from lrpe.attention.recurrent import step_sum
from lrpe.attention.state import DecodingState
from lrpe.attention.summation import Causal
from lrpe.attention.weights import PairWeights
from lrpe.encodings.family import encoding
from lrpe.lab.benchmarks.agreement import Agreement, check_agreement
from lrpe.lab.benchmarks.lines import Line, time_beside
from lrpe.lab.benchmarks.peers import softmax_everywhere, softmax_written_out


@torch.no_grad()
def measure_steps(heads: int, dim: int, goals: dict[int, float], rounds: int) -> Iterator[Line]:
    """Yield the sum alone, which is what SDPA computes, and the whole step with φ, Type 2 and Δ."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, heads, 1, dim, generator=generator)
    S, z = torch.randn(1, heads, dim, dim, generator=generator), torch.rand(1, heads, dim, generator=generator)
    encode, phi, normalizer, summation = encoding("type2", dim), EluPlusOne(), PlainDelta(), Causal()

    for context, goal in goals.items():
        keys, values = torch.randn(2, 1, heads, context, dim, generator=generator)
        state = DecodingState(S, z, torch.tensor([context]))

        def softmax(keys: Tensor = keys, values: Tensor = values):
            return softmax_everywhere(q, keys, values)

        def step():
            return step_sum(q, k, v, PairWeights(), S)

        def whole(state: DecodingState = state):
            return linear_attention(q, k, v, encode, phi, normalizer, summation, decay=None, state=state)

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
    return step_sum(q[:, :, -1:], k[:, :, -1:], v[:, :, -1:], PairWeights(), S)[0]


def _last_by_matrix(x: Tensor) -> Tensor:
    return quadratic_sum(*x.unbind(0), PairWeights(), causal=True)[0][:, :, -1:]


def _last_by_softmax(x: Tensor) -> Tensor:
    return softmax_everywhere(x[0, :, :, -1:], x[1], x[2])


def _last_written_out(x: Tensor) -> Tensor:
    return softmax_written_out(*x.unbind(0), causal=True)[:, :, -1:]
