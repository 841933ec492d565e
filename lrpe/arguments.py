"""Checks of sizes, rates and tensors; each raises an ``LrpeError`` that names the argument and its value."""

from typing import Any

import torch
from torch import Tensor

from lrpe.autograd import under_vmap
from lrpe.errors import LrpeError, require, show

_LARGEST = 2**31 - 1  # a size beyond int32 is a mistake, not a tensor


def check_count(name: str, value: Any, least: int = 1, most: int = _LARGEST) -> None:
    """Raise unless the value is an integer, or a compiler's symbolic integer, within these bounds."""
    whole = isinstance(value, int | torch.SymInt) and not isinstance(value, bool)
    require(
        whole and least <= value <= most,
        lambda: f"{name} must be a whole number from {least} to {most:,}; got {name}={show(value)}.",
    )


def check_rate(name: str, value: Any) -> None:
    """Raise unless the value is a rate 0 ≤ p < 1, such as dropout's."""
    require(
        is_number(value) and 0 <= value < 1,
        lambda: f"{name} must be a rate p with 0 ≤ p < 1; got {name}={show(value)}.",
    )


def check_tensor(name: str, value: Any, like: Tensor | None = None) -> None:
    """Raise unless the value is a dense tensor, on the device of ``like`` if given."""
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
    """Return whether the value is a real number, NaN and infinities included; a bool is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integral(tensor: Tensor) -> bool:
    """Return whether the tensor holds integers or booleans."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def has_values(tensor: Tensor) -> bool:
    """Return whether a check may read the values: not while compiling, on the meta device or under vmap."""
    return not torch.compiler.is_compiling() and tensor.device.type != "meta" and not under_vmap(tensor)


def _kind(tensor: Tensor) -> str:
    return "a nested tensor" if tensor.is_nested else f"{tensor.dtype} in the layout {tensor.layout}"
