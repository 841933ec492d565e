"""Linear maps beside their transposes, which are their gradients."""

import torch
from torch import Tensor

from lrpe.autograd import Differentiable


class HasAdjoint:
    """Something with a ``transform(x, table)`` that is linear in x, and with its transpose, if the class brings one.

    A class that defines ``transform`` anew has an adjoint only if it defines ``adjoint_`` anew as well.
    """

    has_adjoint: bool = False

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        if "transform" in vars(cls):
            cls.has_adjoint = "adjoint_" in vars(cls)

    def adjoint_(self, y: Tensor, table: tuple[Tensor, ...]) -> Tensor:
        """Mᵀ y, in the memory of y if that saves time: nobody else will read y."""
        raise NotImplementedError


class Gather(Differentiable):
    """y[index] along the last axis for an index that is a permutation, so that its gradient is a gather too."""

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
    """π⁻¹ for every permutation π along the last axis."""
    places = torch.arange(index.shape[-1], device=index.device).expand(index.shape)
    return torch.empty_like(index).scatter(-1, index, places)
