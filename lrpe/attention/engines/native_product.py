"""The native product of a few rows with a matrix of weights, which takes as long as reading the weights from memory."""

import ctypes
import functools
from collections.abc import Callable
from ctypes import c_int64, c_void_p

import torch
from torch import Tensor
from torch.nn import Parameter

from lrpe.attention.engines.library import load_library
from lrpe.autograd import only_torch_operations
from lrpe.errors import LrpeError

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
