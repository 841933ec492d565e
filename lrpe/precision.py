"""Precision: what defines an encoding is at least float32, and every angle is computed in float64."""

import functools
from abc import ABC
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

LACK_FLOAT64 = {"mps"}  # device types without float64 or complex numbers; their tables are made on the CPU


class Precise(nn.Module, ABC):
    """A module whose own tensors stay float32 (or float64) through ``.to(torch.bfloat16)`` and ``.half()``.

    Rounding α to bf16 would change the encoding itself, because positions multiply it. A tensor registered by
    ``keep_exact`` stays float64 through ``.float()`` too, wherever the device has float64.
    """

    _exact: tuple[str, ...] = ()  # buffers that stay float64

    def _apply(self, fn, recurse=True):
        def precise(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point():
                return fn(tensor)
            # fn is a closure inside torch, so its device and dtype are read off an empty tensor
            target = fn(torch.empty(0, dtype=torch.float32, device=tensor.device))
            if target.device.type in LACK_FLOAT64 and tensor.dtype == torch.float64:
                return fn(tensor.float())
            return fn(tensor) if target.dtype.itemsize >= 4 else tensor.to(target.device)

        before = {name: self.get_buffer(name) for name in self._exact}
        super()._apply(precise, recurse)
        for name, exact in before.items():
            moved = self.get_buffer(name)
            device, dtype = self.exact_place(moved.device)
            if (moved.device, moved.dtype) != (device, dtype):
                self._buffers[name] = exact.to(device, dtype)
        return self

    def exact_place(self, device: torch.device) -> tuple[torch.device, torch.dtype]:
        """Return where a tensor of ``keep_exact`` lives if the module is moved to ``device``, and its dtype there."""
        return device, torch.float32 if device.type in LACK_FLOAT64 else torch.float64

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs):
        """Cast a file's tensors to our precision first; otherwise ``assign=True`` would keep the file's bf16.

        Their values stay as rounded in the file: an encoding saved in bf16 is loaded with the rounded angles.
        """
        for name, own in (*self.named_parameters(recurse=False), *self.named_buffers(recurse=False)):
            value = state_dict.get(prefix + name)
            if value is not None and value.is_floating_point():
                precise = own.dtype if name in self._exact else at_least_float32(value.dtype)
                state_dict[prefix + name] = value.to(precise)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return float32 for float16 and bfloat16, and wider dtypes unchanged."""
    return dtype if dtype.itemsize >= 4 else torch.float32


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which features of ``dtype`` are encoded: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def in_dtype(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the tensor in this dtype; for one token, even a conversion to the same dtype takes as long as a sum."""
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


def in_float64(tensor: Tensor) -> Tensor:
    """Return the tensor in float64, on its own device if that has float64, else on the CPU."""
    if tensor.dtype is torch.float64:  # such a tensor is on no device that lacks them
        return tensor
    return (tensor.cpu() if tensor.device.type in LACK_FLOAT64 else tensor).double()


def without_autocast(tensor: Tensor) -> AbstractContextManager:
    """Return a context that disables autocast, which would round what an encoding computes."""
    device = tensor.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):  # meta has shapes but no numbers, and no autocast
        return nullcontext()
    return torch.autocast(device, enabled=False)


def generator_of(seed: int | None) -> torch.Generator | None:
    """Return a generator for the seed, or None (torch's global generator) if there is no seed."""
    return None if seed is None else torch.Generator().manual_seed(seed)


def next_seed(seed: int | None, steps: int = 1) -> int | None:
    """Return seed + steps, or None (torch's global generator) if there is no seed."""
    return None if seed is None else seed + steps


def normal(*shape: int, seed: int | None) -> Tensor:
    """Return standard normal float32 numbers on the default device.

    They depend on the seed alone; without a seed they come from torch's global generator, like other modules' weights.
    """
    drawn = torch.randn(shape, generator=generator_of(seed), dtype=torch.float32, device="cpu")
    return drawn.to(torch.get_default_device())


def keep(module: nn.Module, name: str, value: Tensor, learned: bool) -> None:
    """Register ``value`` so that it is in the state_dict: as a parameter if learned, else as a buffer.

    It has the default dtype, like the weights of other modules, or float32 if that dtype is narrower. A float64 model
    that is built under a float64 default therefore loads its learned values without rounding.
    """
    value = value.to(torch.get_default_device(), at_least_float32(torch.get_default_dtype()))
    if learned:
        module.register_parameter(name, nn.Parameter(value))
    else:
        module.register_buffer(name, value)


def keep_exact(module: Precise, name: str, value: Tensor) -> None:
    """Register ``value`` as a buffer that stays float64 when the module is cast."""
    module.register_buffer(name, value.to(*module.exact_place(torch.get_default_device())))
    module._exact = (*module._exact, name)


def in_full_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function of a tensor, or of a tuple that starts with one, to run with autocast off."""

    @functools.wraps(function)
    def run(first: Any, *rest: Any, **options: Any) -> Any:
        with without_autocast(first if isinstance(first, Tensor) else first[0]):
            return function(first, *rest, **options)

    return run
