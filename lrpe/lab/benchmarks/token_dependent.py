"""Attention whose decay or steps depend on the token ÷ the same attention with a fixed decay and fixed steps."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from lrpe.attention.decay import spread_decay
from lrpe.attention.functional import linear_attention
from lrpe.attention.summation import Quadratic
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.encodings.family import encoding
from lrpe.lab.benchmarks.agreement import Agreement, check_agreement
from lrpe.lab.benchmarks.lines import Line, forward_and_backward, time_beside

ABOUT = (
    "'gated decay' and 'selective steps' are the default attention (φ, Type 2 with learned α, causal, decay) with a",
    "decay or a step per token and head, their gradients included, ÷ the same with fixed ones.",
)


def measure_token_dependent(heads: int, dim: int, goals: dict[str, dict[int, float]], rounds: int) -> Iterator[Line]:
    """Yield a gated decay and selective steps, each ÷ the default attention; goals are by name and length."""
    encode = encoding("type2", dim, seed=0)
    for name, by_length in goals.items():
        for n, goal in by_length.items():
            inputs, learned = draw(name, heads, n, dim), list(encode.parameters())
            ours = forward_and_backward(attend(encode, name), *inputs, learned=learned)
            fixed = forward_and_backward(attend(encode, None), *inputs[:3], learned=learned)
            yield time_beside(f"causal, {name} ÷ fixed", f"N = {n}", goal, ours, fixed, rounds)


def check_token_dependent(heads: int, dim: int) -> Iterator[Agreement]:
    """Check both against the n × n specification."""
    encode = encoding("type2", dim, seed=0).requires_grad_(False)
    for name in _CHOICES:
        *qkv, own = draw(name, heads, 65, dim)
        sides = [
            lambda x, how=how: attend(encode, name, how)(*x.unbind(0), own)  # noqa: B023  # called in this turn
            for how in ("causal", Quadratic())
        ]
        yield check_agreement((f"causal, {name}", "its matrix"), (sides[0], sides[1]), torch.stack(qkv), 1e-4, "sums")


_CHOICES = {"gated decay": "log_decay", "selective steps": "steps"}  # the argument of linear_attention


def draw(name: str, heads: int, n: int, dim: int) -> list[Tensor]:
    """Return q, k and v (1, heads, n, dim), and a log-decay or a step per head and token."""
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(3, 1, heads, n, dim, generator=generator)
    noise = torch.rand(1, heads, n, generator=generator)
    log_r = torch.tensor(spread_decay(heads)).log()[None, :, None]
    return [*qkv.unbind(0), log_r * (0.5 + noise) if name == "gated decay" else 0.5 + noise]


def attend(encode: PositionalEncoding, name: str | None, how: object = "causal") -> Callable[..., Tensor]:
    """Return attention as a function of q, k, v and, if ``name`` says so, of a log-decay or of steps."""

    def compute(q: Tensor, k: Tensor, v: Tensor, *own: Tensor) -> Tensor:
        options = {} if name is None else {_CHOICES[name]: own[0]}
        return linear_attention(q, k, v, encode, summation=how, output_final_state=False, **options)[0]  # type: ignore[arg-type]

    return compute
