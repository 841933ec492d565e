"""The sum of the scores where every weight is 1: Σ_{s ≤ t} q_t·k_s = q_t·z_t, with z_t the sum of the keys so far."""

import torch
from torch import Tensor

from lrpe.attention.full_precision import in_full_precision
from lrpe.encodings.differentiable import Differentiable
from lrpe.encodings.precision import compute_dtype


def running_total(q: Tensor, k: Tensor, z: Tensor | None) -> tuple[Tensor, Tensor]:
    """The sums (batch, heads, n, 1) from a first sum of keys z (batch, key heads, f), and the last sum of keys."""
    dtype = compute_dtype(q.dtype)
    q, k = q.to(dtype), k.to(dtype)
    sums = RunningTotal.of(q, k, k.new_zeros(*k.shape[:2], k.shape[-1]) if z is None else z.to(dtype))
    return sums, (k.sum(2) if z is None else z + k.sum(2))


class RunningTotal(Differentiable):
    """q_t·z_t with z_t = z + Σ_{s ≤ t} k_s, and its gradients dq_t = g_t z_t, dk_s = Σ_{t ≥ s} g_t q_t, dz = dk_0."""

    generate_vmap_rule = True

    @staticmethod
    @in_full_precision
    def forward(q: Tensor, k: Tensor, z: Tensor) -> Tensor:
        sums = k.cumsum(2).add_(z.unsqueeze(2))
        return torch.einsum("bhgtf,bhtf->bhgt", grouped(q, k), sums).reshape(*q.shape[:3], 1)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        q, k, z = ctx.saved_tensors
        sums = k.cumsum(2) + z.unsqueeze(2)
        dq = grouped(grads[0], k) * sums.unsqueeze(2)
        added = grouped(grads[0] * q, k).sum(2)
        return dq.reshape(q.shape), added.flip(2).cumsum(2).flip(2), added.sum(2)


def grouped(x: Tensor, k: Tensor) -> Tensor:
    """(batch, heads, n, d) -> (batch, key heads, group, n, d)."""
    return x.unflatten(1, (k.shape[1], -1))
