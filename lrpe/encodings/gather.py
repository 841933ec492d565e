"""A gather by a permutation, whose gradient is a gather too."""

import torch
from torch import Tensor

from lrpe.encodings.differentiable import Differentiable


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
