"""Autograd functions with little overhead per call, and every private hook of torch that they need.

The hooks are private because torch has no public way to ask the same question:

- ``torch._C._are_functorch_transforms_active`` tells eager calls from those under ``torch.func``. Without it each call
  would take the slow ``Function.apply``.
- ``is_legacy_batchedtensor`` recognises the batched gradients of ``is_grads_batched``. Without it an in-place backward
  pass would write a batched result into an unbatched tensor.
- ``is_batchedtensor`` recognises a tensor under ``vmap``, also inside the wrapper of another transform. Without it a
  check of values would raise there.
- ``forward_ad._current_level`` tells whether a forward-mode derivative is being taken. Without it a Function that has
  no ``jvp`` would raise there.
- ``is_in_torch_dispatch_mode`` tells whether a mode (fake tensors, a counter of operations) watches every operation.
  Without it a kernel outside torch would read tensors that have no memory, or go unnoticed.
- ``registered`` reads ``_modules``, ``_parameters`` and ``_buffers`` of a module. Without it a tenth of the time of a
  decoded token would be spent on looking up the attributes of its layer.
- ``super(Function, cls).apply`` in ``Differentiable.of`` is the C++ ``apply``, without the Python wrapper around it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import (
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
    is_legacy_batchedtensor,
)
from torch.autograd import Function, forward_ad
from torch.utils._python_dispatch import is_in_torch_dispatch_mode


def eager() -> bool:
    """Return whether operations run eagerly: neither a compiler nor a transform of torch.func is active."""
    return not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


def one_at_a_time(*grads: Tensor) -> bool:
    """Return whether a backward pass may overwrite its own intermediate results.

    Under vmap or autograd's ``is_grads_batched`` it may not: a gradient can have a batch axis that they lack.
    """
    return eager() and not any(is_legacy_batchedtensor(g) for g in grads)


def under_vmap(tensor: Tensor) -> bool:
    """Return whether the tensor has one value per entry of an axis of ``torch.vmap``, so that no branch can read it."""
    while is_functorch_wrapped_tensor(tensor):
        if is_batchedtensor(tensor):
            return True
        tensor = get_unwrapped(tensor)
    return False


def has_values(tensor: Tensor) -> bool:
    """Return whether a check may read the values: not while compiling, on the meta device or under vmap."""
    return not torch.compiler.is_compiling() and tensor.device.type != "meta" and not under_vmap(tensor)


def needs_gradient(*inputs: Any) -> bool:
    """Return whether a result of these inputs needs a gradient."""
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs)


def differentiating_forward() -> bool:
    """Return whether forward-mode derivatives are being taken, which a Function without ``jvp`` does not support."""
    return forward_ad._current_level >= 0


def only_torch_operations() -> bool:
    """Return whether each operation must be one of torch's, as something records, transforms or differentiates them."""
    if not eager():  # first: a compiler cannot trace the other questions
        return True
    return differentiating_forward() or is_in_torch_dispatch_mode() or torch.jit.is_tracing()  # type: ignore[attr-defined]


class Remembered:
    """A function of a constant tensor, computed again if the tensor is another one or was written to.

    torch counts the writes to a tensor for its own checks; like those, this does not see a write through ``.data``.
    """

    def __init__(self, compute: Callable[[Tensor], Tensor]):
        self._compute = compute
        self._last: tuple[Tensor | None, int, Tensor | None] = (None, 0, None)  # of one call, for other threads

    def __call__(self, tensor: Tensor) -> Tensor:
        if only_torch_operations() or tensor.requires_grad or tensor.is_inference():  # no write to the last is counted
            return self._compute(tensor)
        of, writes, result = self._last
        if result is None or of is not tensor or writes != tensor._version:
            with torch.inference_mode(False):  # a result that training, too, can use
                result = self._compute(tensor)
            self._last = tensor, tensor._version, result
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy nothing that was remembered: the writes to a copy of the tensor are counted anew."""
        return Remembered, (self._compute,)


class _Registered:
    def __init__(self, kept: str):
        self.kept = kept

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, module: Any, owner: type | None = None) -> Any:
        try:
            return module.__dict__[self.kept][self.name]
        except (AttributeError, KeyError):  # of the class, or not there: torch's __getattr__ is asked next
            raise AttributeError(self.name) from None


def registered(kept: str) -> Any:
    """Return an attribute that torch keeps in one of a module's dictionaries, to be read in a fifth of the time.

    torch's ``__getattr__`` is asked after a search has failed, and looks into three dictionaries in turn; a decoded
    token reads thirty such attributes of each layer. This attribute is looked up in the same dictionary, so a module or
    parameter that is replaced there is replaced here. A plain attribute of the module comes first, as in torch.

    Args:
        kept: the dictionary: "_modules", "_parameters" or "_buffers". It must always be the same one, as a compiler
            cannot trace the second search.
    """
    return _Registered(kept)


class Differentiable(Function):
    """A Function whose ``of`` does what ``apply`` does, with less overhead.

    If no gradient is needed it calls ``forward`` alone. Otherwise it calls the C++ ``apply`` directly; the Python one
    first inspects the signature of ``forward``, which takes longer than a small attention sum itself.
    """

    @classmethod
    def of(cls, *inputs: Any) -> Any:
        if not eager():
            return cls.apply(*inputs)
        if needs_gradient(*inputs):
            return super(Function, cls).apply(*inputs)  # type: ignore[misc]
        return cls.forward(*inputs)
