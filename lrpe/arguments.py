"""Arguments that are sizes, rates and tensors, checked: an ``LrpeError`` names the argument and what it must be."""

from typing import Any

import torch
from torch import Tensor

from lrpe.errors import LrpeError, require, show

_LARGEST = 2**31 - 1  # of a size


def check_count(name: str, value: Any, least: int = 1, most: int = _LARGEST) -> None:
    """Raise unless the value is a whole number within these bounds; a compiler's symbol for one is a whole number."""
    whole = isinstance(value, int | torch.SymInt) and not isinstance(value, bool)
    require(
        whole and least <= value <= most,
        lambda: f"{name} must be a whole number from {least} to {most:,}; got {name}={show(value)}.",
    )


def check_rate(name: str, value: Any) -> None:
    """Raise unless the value is a probability that leaves something: 0 ≤ p < 1."""
    require(
        is_number(value) and 0 <= value < 1,
        lambda: f"{name} must be a rate p with 0 ≤ p < 1; got {name}={show(value)}.",
    )


def check_tensor(name: str, value: Any, like: Tensor | None = None) -> None:
    """Raise unless the value is an ordinary tensor, on the device of ``like`` if that is given."""
    if not isinstance(value, Tensor):
        raise LrpeError(f"{name} must be a tensor; got {type(value).__name__}.")
    dense = value.layout == torch.strided and not (value.is_quantized or value.is_nested)
    require(dense, lambda: f"{name} must be a dense tensor; got {_kind(value)}.")
    if like is not None:
        same = value.device == like.device
        require(same, lambda: f"{name} must be on the device of x, {like.device}; got {value.device}.")


def check_real(name: str, value: Any, like: Tensor | None = None) -> None:
    """Raise unless the value is a tensor of real floating-point numbers."""
    check_tensor(name, value, like)
    require(value.is_floating_point(), lambda: f"{name} must hold real floating-point numbers; got {value.dtype}.")


def is_number(value: Any) -> bool:
    """Whether it is a real number, NaN and infinity included."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integral(tensor: Tensor) -> bool:
    """Whether it holds integers or booleans."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def has_values(tensor: Tensor) -> bool:
    """Whether a check may look at the numbers: a compiler has none yet, and the meta device never has."""
    return not torch.compiler.is_compiling() and tensor.device.type != "meta"


def _kind(tensor: Tensor) -> str:
    return "a nested one" if tensor.is_nested else f"{tensor.dtype} in the layout {tensor.layout}"
