"""Σ_s (q_t·k_s) v_s over all keys: q (kᵀ v), whose gradient is four products."""

import torch
from torch import Tensor

from lrpe.attention.causal_sum import causal_sum
from lrpe.attention.frame import Frame
from lrpe.attention.full_precision import in_full_precision
from lrpe.encodings.precision import compute_dtype


def bidirectional_sum(
    q: Tensor, k: Tensor, v: Tensor, frame: Frame, chunk: int = 64, total: bool = False
) -> tuple[Tensor, Tensor]:
    """Σ_s w_ts (q_t·k_s) v_s and, if ``total`` is asked for, Σ_s w_ts (q_t·k_s), with w_ts = r^|p_t - p_s|.

    With no decay and no borders the sum is taken once for all queries. Else it is the causal sum, plus the causal sum
    read from the end, less the key on the spot, which both have seen.
    """
    dtype = compute_dtype(q.dtype)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if frame.plain:
        rows = q.unflatten(1, (k.shape[1], -1)).flatten(2, 3)  # the queries of a group, one after another
        out = sum_over_all(rows, k, v).reshape(*q.shape[:3], v.shape[-1])
        return out, (score_total(rows, k) if total else rows[..., :0]).reshape(*q.shape[:3], int(total))
    out, sums, *_ = causal_sum(q, k, v, frame, chunk=chunk, total=total)
    back, back_sums, *_ = causal_sum(q.flip(2), k.flip(2), v.flip(2), frame.reversed(), chunk=chunk, total=total)
    group = q.shape[1] // k.shape[1]
    on_spot = (q * k.repeat_interleave(group, 1)).sum(-1, keepdim=True)
    out = out + back.flip(2) - on_spot * v.repeat_interleave(group, 1)
    return out, sums + back_sums.flip(2) - (on_spot if total else sums)


@in_full_precision
def score_total(q: Tensor, k: Tensor) -> Tensor:
    """Σ_s q·k_s = q·Σ_s k_s."""
    return q @ k.sum(-2)[..., None]


def sum_over_all(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Σ_s (q·k_s) v_s; of values that are 0 wide, nothing."""
    return SumOverAll.apply(q, k, v)[0] if v.shape[-1] else q[..., :0]


class SumOverAll(torch.autograd.Function):
    """o = q S with S = kᵀ v, and its gradients dS = qᵀ g, dq = g Sᵀ, dk = v dSᵀ, dv = k dS."""

    generate_vmap_rule = True

    @staticmethod
    @in_full_precision
    def forward(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        S = k.mT @ v
        return q @ S, S

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx, *grads: Tensor):
        return SumOverAll.gradients(*ctx.saved_tensors, *grads)

    @staticmethod
    @in_full_precision
    def gradients(q: Tensor, k: Tensor, v: Tensor, S: Tensor, g: Tensor, g_S: Tensor):
        dS = q.mT @ g + g_S
        return g @ S.mT, v @ dS.mT, k @ dS
