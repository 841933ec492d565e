"""The linear layers of attention and of models: torch's, but at inference a few rows take the native product."""

import ctypes
import functools
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter

from lrpe.attention.engines.choice import allows
from lrpe.attention.engines.library import load_library
from lrpe.autograd import only_torch_operations
from lrpe.errors import LrpeError, unknown_name

_MOST_ROWS = 8  # with more, torch's product is as fast: it reads the weights once for all of them
_MOST_THREADS = 2  # a product is too short to start threads for it; torch, whose threads wait, is faster with more


@functools.cache
def _load() -> Callable[..., int] | None:
    """Return the kernel, or None if there is no library for this machine."""
    library = load_library()
    if not isinstance(library, ctypes.CDLL):
        return None
    library.lrpe_product.argtypes = [c_void_p] * 4 + [c_int64] * 4
    return library.lrpe_product


def can_multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether the kernel can compute x Wᵀ + b, without a gradient: a few rows of float32 on a CPU."""
    if torch.compiler.is_compiling():  # first: what follows would break the graph, or tie it to the number of rows
        return False
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return False
    width = weight.shape[-1]
    if not (type(x) is Tensor and type(weight) is Parameter and 0 < x.numel() <= _MOST_ROWS * width):
        return False
    if not (x.dtype is weight.dtype is torch.float32 and x.is_cpu and weight.is_cpu and x.shape[-1] == width):
        return False
    fits = bias is None or (type(bias) is Parameter and bias.dtype is torch.float32 and bias.is_cpu)
    if not fits or torch.is_autocast_enabled("cpu") or torch.get_num_threads() > _MOST_THREADS:
        return False
    return not only_torch_operations() and _load() is not None


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x Wᵀ + b; (..., width) -> (..., outputs). A row's result does not depend on the other rows of the call."""
    kernel = _load()
    assert kernel is not None
    x, weight = x.contiguous(), weight.contiguous()
    outputs, width = weight.shape
    y = x.new_empty(*x.shape[:-1], outputs)
    bias = None if bias is None else bias.contiguous()
    pointers = x.data_ptr(), weight.data_ptr(), None if bias is None else bias.data_ptr(), y.data_ptr()
    if kernel(*pointers, x.numel() // width, width, outputs, torch.get_num_threads()) != 0:
        raise LrpeError("The native engine ran out of memory. Use lrpe.engines.use('torch').")
    return y


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
