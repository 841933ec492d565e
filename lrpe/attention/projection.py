"""The linear layers of attention and of models: torch's, but at inference a few rows take the native product."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrpe.attention.engines.choice import allows
from lrpe.attention.engines.library import can_multiply, multiply
from lrpe.errors import unknown_name


class Projection(nn.Linear):
    """y = W x + b. A decoded token is one row, and its time that of reading W: the native kernel reads it in order."""

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        if can_multiply(input, weight, bias) and allows("native"):
            return multiply(input, weight, bias)
        return F.linear(input, weight, bias)


OUTPUT_GATES: dict[str, Callable[[Tensor], Tensor]] = {"sigmoid": torch.sigmoid, "silu": F.silu}


class OutputGate(nn.Module):
    """o_t ⊙ act(W x_t), on the joined heads before the output projection; act is σ or silu."""

    def __init__(self, width: int, joined: int, activation: str, bias: bool):
        super().__init__()
        if not isinstance(activation, str) or activation not in OUTPUT_GATES:
            raise unknown_name("output_gate", activation, [*OUTPUT_GATES, "None"])
        self.activation = activation
        self.proj = Projection(width, joined, bias=bias)

    def forward(self, heads: Tensor, x: Tensor) -> Tensor:
        """Gate the joined heads (batch, n, joined) by the tokens x (batch, n, width)."""
        return heads * OUTPUT_GATES[self.activation](self.proj(x))

    def extra_repr(self) -> str:
        return self.activation


def choose_output_gate(choice: Any, width: int, joined: int, bias: bool) -> OutputGate | None:
    """Return the output gate of a layer by name, or None."""
    return None if choice is None else OutputGate(width, joined, choice, bias)
