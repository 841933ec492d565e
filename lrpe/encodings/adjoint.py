"""Linear maps beside their transposes, which are their gradients."""

import torch
from torch import Tensor

from lrpe.autograd import Differentiable


class HasAdjoint:
    """Has a ``transform(x, table)`` that is linear in x, and its transpose ``adjoint_`` if the class defines one.

    A subclass that overrides ``transform`` has an adjoint only if it overrides ``adjoint_`` too.
    """

    has_adjoint: bool = False

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        if "transform" in vars(cls):
            cls.has_adjoint = "adjoint_" in vars(cls)

    def adjoint_(self, y: Tensor, table: tuple[Tensor, ...]) -> Tensor:
        """Return Mᵀ y, and may overwrite y to save memory: the caller must not read y again."""
        raise NotImplementedError


class Gather(Differentiable):
    """Gather y[index] along the last axis by a permutation; its gradient is the gather by the inverse.

    Autograd's own gradient would be a scatter, which is slower and not deterministic on GPUs.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(y: Tensor, index: Tensor) -> Tensor:
        return y.gather(-1, index.expand(y.shape))

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (index,) = ctx.saved_tensors
        return Gather.of(grads[0], inverse(index)), None


def inverse(index: Tensor) -> Tensor:
    """Return π⁻¹ for every permutation π along the last axis."""
    places = torch.arange(index.shape[-1], device=index.device).expand(index.shape)
    return torch.empty_like(index).scatter(-1, index, places)
