"""Functions with a gradient of their own, called without ceremony."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Differentiable(Function):
    """A Function whose ``of`` is its ``apply``, less what is not needed.

    Where nobody can ask for a gradient it is ``forward`` alone. Else it is what ``apply`` does when no transform of
    torch.func is at work, without reading the signature of ``forward`` first: that takes longer than a small sum.
    """

    @classmethod
    def of(cls, *inputs: Any) -> Any:
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            return cls.apply(*inputs)
        if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
            return super(Function, cls).apply(*inputs)  # type: ignore[misc]
        return cls.forward(*inputs)
