"""Functions with a gradient of their own, called without ceremony."""

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import Function, forward_ad


def eager() -> bool:
    """Whether torch does at once what it is told: no compiler and no transform of torch.func is at work."""
    return not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


def one_at_a_time(*grads: Tensor) -> bool:
    """Whether a backward pass may overwrite what it has made.

    Under vmap, or autograd's own ``is_grads_batched``, it may not: a gradient can have an axis that its own do not.
    """
    return eager() and not any(is_legacy_batchedtensor(g) for g in grads)


def _needs_gradient(*inputs: Any) -> bool:
    """Whether somebody can ask for a gradient of what these become."""
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs)


def differentiating_forward() -> bool:
    """Whether derivatives are being taken forward, which a Function without a ``jvp`` cannot follow."""
    return forward_ad._current_level >= 0


class Differentiable(Function):
    """A Function whose ``of`` is its ``apply``, less what is not needed.

    Where nobody can ask for a gradient it is ``forward`` alone. Else it is what ``apply`` does when no transform of
    torch.func is at work, without reading the signature of ``forward`` first: that takes longer than a small sum.
    """

    @classmethod
    def of(cls, *inputs: Any) -> Any:
        if not eager():
            return cls.apply(*inputs)
        if _needs_gradient(*inputs):
            return super(Function, cls).apply(*inputs)  # type: ignore[misc]
        return cls.forward(*inputs)
