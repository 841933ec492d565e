"""One decoding step of the default attention, whole, ÷ SDPA with a static cache of keys and values."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from lrpe.attention.choices import Causal, Quadratic, Summation
from lrpe.attention.decay import spread_decay
from lrpe.attention.engines.choice import engine_used
from lrpe.attention.feature_map import elu_plus_one
from lrpe.attention.functional import linear_attention
from lrpe.attention.normalizer import PlainDelta
from lrpe.attention.state import DecodingState
from lrpe.encodings.family import encoding
from lrpe.lab.benchmarks.agreement import Agreement, check_agreement
from lrpe.lab.benchmarks.device import place
from lrpe.lab.benchmarks.limit import Shape
from lrpe.lab.benchmarks.lines import Call, Line, line_from
from lrpe.lab.benchmarks.peers import softmax_everywhere
from lrpe.lab.benchmarks.sides import draw
from lrpe.lab.benchmarks.turns import take_turns


def measure_steps(shape: Shape, contexts: Sequence[int], rounds: int) -> Iterator[Line]:
    """Yield a line per context for batch 1 and the heads of this shape."""
    _, heads, _, dim = shape
    generator, attend = torch.Generator().manual_seed(0), _attention(heads, dim, Causal())
    q, k, v = place(torch.randn(3, 1, heads, 1, dim, generator=generator))
    S = place(torch.randn(1, heads, dim, dim, generator=generator))
    z = place(torch.rand(1, heads, dim, generator=generator))
    for context in contexts:
        keys, values = place(torch.randn(2, 1, heads, context, dim, generator=generator))
        step = _without_graph(attend, q, k, v, DecodingState(S, z, place(torch.tensor([context]))))
        turns = take_turns({"ours": step, "SDPA": _without_graph(softmax_everywhere, q, keys, values)}, rounds)
        row, engine = "decoding step, default ÷ SDPA with a static cache", engine_used(step).engine
        yield line_from(turns.ratio("ours", "SDPA"), row, f"context {context}", None, turns.processor_share, engine)


def check_steps(shape: Shape) -> Iterator[Agreement]:
    """Check the last of some tokens, a step after a prompt, against the n × n specification."""
    attend, specify = (_attention(shape[1], shape[3], how) for how in (Causal(), Quadratic()))

    def by_step(x: Tensor) -> Tensor:
        prompt, token = x[..., :-1, :], x[..., -1:, :]
        return attend(*token.unbind(0), attend(*prompt.unbind(0), None)[1])[0]

    def by_matrix(x: Tensor) -> Tensor:
        return specify(*x.unbind(0), None)[0][:, :, -1:]

    yield check_agreement(("decoding step", "its matrix"), (by_step, by_matrix), torch.stack(draw(shape)), 1e-4, "sums")


def _attention(heads: int, dim: int, how: Summation) -> Callable[..., tuple[Tensor, DecodingState | None]]:
    """Return the default attention as a function of q, k, v and the state to continue."""
    encode, normalizer, decay = place(encoding("type2", dim, seed=0)), PlainDelta(), spread_decay(heads)

    def attend(q: Tensor, k: Tensor, v: Tensor, state: DecodingState | None):
        return linear_attention(q, k, v, encode, elu_plus_one, normalizer, summation=how, decay=decay, state=state)

    return attend


def _without_graph(compute: Callable[..., Any], *arguments: Any) -> Call:
    def run() -> object:
        with torch.no_grad():
            return compute(*arguments)

    return run
