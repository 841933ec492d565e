"""The attentions that ``lrpe bench attention`` times, whole: φ, P, Λ, decay and Δ through ``lrpe.linear_attention``."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lrpe.attention.choices import Bidirectional, Causal, Quadratic, Summation
from lrpe.attention.decay import spread_decay
from lrpe.attention.engines.choice import use
from lrpe.attention.feature_map import elu_plus_one
from lrpe.attention.functional import linear_attention
from lrpe.attention.normalizer import PlainDelta
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.encodings.family import encoding
from lrpe.lab.benchmarks.agreement import Agreement, check_agreement
from lrpe.lab.benchmarks.device import place
from lrpe.lab.benchmarks.limit import Shape
from lrpe.lab.benchmarks.lines import Call, forward_and_backward

DEFAULT, BIDIRECTIONAL = "default", "Type 2, no decay"
OTHERS = ("RoPE", "Type 1", "Type 3", "gated decay", "selective steps")  # causal, besides the default
_ENCODINGS = {"RoPE": "rope", "Type 1": "type1", "Type 3": "type3"}  # of all others: type2, whose α is learned
_ARGUMENTS = {"gated decay": "log_decay", "selective steps": "steps"}  # of linear_attention, a number per token
_PHI, _NORMALIZER = elu_plus_one, PlainDelta()

ABOUT = (
    "'default' is what linear_attention computes if nothing is chosen: φ = elu + 1, Type 2 with learned α, the spread",
    "decay, and Δ of plain features. The others differ from it in the encoding, or by a decay or a step per token and",
    "head with a gradient. The bidirectional side is the default without decay.",
)


@dataclass(frozen=True)
class Side:
    """One of our attentions, ready to be called with the tensors that it was given."""

    inputs: list[Tensor]  # q, k, v and, if it depends on the token, the log-decay or the steps
    attend: Callable[..., Tensor]
    learned: list[Tensor] = field(default_factory=list)

    def forward(self) -> Call:
        """Return a call of the forward pass, as in evaluation: no graph is kept."""

        def run() -> Tensor:
            with torch.no_grad():
                return self.attend(*self.inputs)

        return run

    def forward_and_backward(self) -> Call:
        """Return a call that also computes the gradients of all inputs and learned parameters."""
        return forward_and_backward(self.attend, *self.inputs, learned=self.learned)

    def by_torch(self) -> "Side":
        """Return the same attention, computed by the torch engine."""

        def attend(*inputs: Tensor) -> Tensor:
            with use("torch"):
                return self.attend(*inputs)

        return Side(self.inputs, attend, self.learned)


def make_side(name: str, shape: Shape, summation: Summation | None = None) -> Side:
    """Return an attention by name; ``summation`` replaces the linear-time one, to check it."""
    causal = name != BIDIRECTIONAL
    encode = place(encoding(_ENCODINGS.get(name, "type2"), shape[3], seed=0))
    how = summation or (Causal() if causal else Bidirectional())
    decay = spread_decay(shape[1]) if causal and name != "gated decay" else None
    attend = _attend(encode, how, decay, _ARGUMENTS.get(name))
    return Side(draw(shape, name), attend, [x for x in encode.parameters() if x.requires_grad])


def _attend(encode: PositionalEncoding, how: Summation, decay: Any, argument: str | None) -> Callable[..., Tensor]:
    def compute(q: Tensor, k: Tensor, v: Tensor, *own: Tensor) -> Tensor:
        options: dict[str, Any] = {} if argument is None else {argument: own[0]}
        options |= {"summation": how, "decay": decay, "output_final_state": False}
        return linear_attention(q, k, v, encode, _PHI, _NORMALIZER, **options)[0]

    return compute


def draw(shape: Shape, name: str = DEFAULT) -> list[Tensor]:
    """Return q, k, v and, for a side that depends on the token, a log-decay or a step per head and token."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = place(torch.randn(3, *shape, generator=generator))
    if name not in _ARGUMENTS:
        return [q, k, v]
    noise = torch.rand(shape[:3], generator=generator)
    log_r = torch.tensor(spread_decay(shape[1])).log()[None, :, None]
    return [q, k, v, place(log_r * (0.5 + noise) if name == "gated decay" else 0.5 + noise)]


def check_sides(shape: Shape) -> Iterator[Agreement]:
    """Check every attention, and the default by the torch engine, against the n × n specification in float32."""
    for name in (DEFAULT, *OTHERS, BIDIRECTIONAL):
        linear, matrix = make_side(name, shape), make_side(name, shape, Quadratic(causal=name != BIDIRECTIONAL))
        x = torch.stack(linear.inputs[:3])
        ways = {name: linear, f"{name}, torch engine": linear.by_torch()}
        for title, side in ways.items():
            both = (_on_stack(side), _on_stack(matrix))
            yield check_agreement((title, "its matrix"), both, x, 1e-4, "attention")


def _on_stack(side: Side) -> Callable[[Tensor], Tensor]:
    """Return the attention as a function of the tensor that stacks q, k and v."""
    return lambda x: side.attend(*x.unbind(0), *side.inputs[3:])
