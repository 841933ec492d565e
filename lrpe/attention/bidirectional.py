"""Σ_s (q_t·k_s) v_s over all keys, computed as q (kᵀ v).

The Functions here return S and z too, because ``setup_context`` can save only inputs and outputs.
"""

import torch
from torch import Tensor

from lrpe.attention.causal_sum import causal_sum
from lrpe.attention.full_precision import in_full_precision
from lrpe.attention.weights import PairWeights
from lrpe.autograd import Differentiable, one_at_a_time
from lrpe.precision import compute_dtype


def bidirectional_sum(
    q: Tensor, k: Tensor, v: Tensor, pairs: PairWeights, chunk: int = 64, total: bool = False
) -> tuple[Tensor, Tensor]:
    """Σ_s w_ts (q_t·k_s) v_s and, if ``total``, Σ_s w_ts (q_t·k_s), with w_ts = r^|p_t - p_s|.

    If every weight is 1, one sum over the keys is shared by all queries. Otherwise the result is the causal sum plus
    the causal sum of the reversed tokens, minus the term s = t, which both contain.
    """
    dtype = compute_dtype(q.dtype)
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if pairs.all_ones:
        out, sums = _sum_over_all(by_group(q, k.shape[1]), k, v, total)
        return out.reshape(*q.shape[:3], v.shape[-1]), sums.reshape(*q.shape[:3], int(total))
    out, sums, *_ = causal_sum(q, k, v, pairs, chunk=chunk, total=total)
    back, back_sums, *_ = causal_sum(q.flip(2), k.flip(2), v.flip(2), pairs.reversed(), chunk=chunk, total=total)
    group = q.shape[1] // k.shape[1]
    on_spot = (q * k.repeat_interleave(group, 1)).sum(-1, keepdim=True)
    out = out + back.flip(2) - on_spot * v.repeat_interleave(group, 1)
    return out, sums + back_sums.flip(2) - (on_spot if total else sums)


def by_group(x: Tensor, groups: int) -> Tensor:
    """(batch, heads, n, f) -> (batch, groups, heads per group · n, f): the heads of a group, one after another."""
    return x.unflatten(1, (groups, -1)).flatten(2, 3)


def _sum_over_all(q: Tensor, k: Tensor, v: Tensor, total: bool) -> tuple[Tensor, Tensor]:
    """Return Σ_s (q·k_s) v_s and, if ``total``, Σ_s q·k_s; values of width 0 skip the first sum."""
    if v.shape[-1] == 0:
        return q[..., :0], _ScoreTotal.of(q, k)[0] if total else q[..., :0]
    if not total:
        return _SumOverAll.of(q, k, v)[0], q[..., :0]
    return _SumAndTotal.of(q, k, v)[:2]


class _SumOverAll(Differentiable):
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
        return _SumOverAll.gradients(*ctx.saved_tensors, *grads)

    @staticmethod
    @in_full_precision
    def gradients(q: Tensor, k: Tensor, v: Tensor, S: Tensor, g: Tensor, g_S: Tensor):
        dS = q.mT @ g + g_S
        return g @ S.mT, v @ dS.mT, k @ dS


class _ScoreTotal(Differentiable):
    """Δ = q·z with z = Σ_s k_s, and its gradients dz = Σ_t g_t q_t, dq = g z, dk_s = dz for every s."""

    generate_vmap_rule = True

    @staticmethod
    @in_full_precision
    def forward(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        z = k.sum(-2, keepdim=True)
        return q @ z.mT, z

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx, *grads: Tensor):
        return _ScoreTotal.gradients(*ctx.saved_tensors, *grads)

    @staticmethod
    @in_full_precision
    def gradients(q: Tensor, k: Tensor, z: Tensor, g: Tensor, g_z: Tensor):
        return g * z, (g.mT @ q + g_z).expand(k.shape)


class _SumAndTotal(Differentiable):
    """o and Δ of the same features; their gradients are added in place, without a second copy of dq and dk."""

    generate_vmap_rule = True

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        (out, S), (total, z) = _SumOverAll.forward(q, k, v), _ScoreTotal.forward(q, k)
        return out, total, S, z

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs, *output[2:])

    @staticmethod
    def backward(ctx, *grads: Tensor):
        return _SumAndTotal.gradients(*ctx.saved_tensors, *grads)

    @staticmethod
    @in_full_precision
    def gradients(q, k, v, S, z, g, g_total, g_S, g_z):
        dq, dk, dv = _SumOverAll.gradients(q, k, v, S, g, g_S)
        dz = g_total.mT @ q + g_z
        if one_at_a_time(g, g_total, dz):
            return dq.addcmul_(g_total, z), dk.add_(dz), dv
        return torch.addcmul(dq, g_total, z), dk + dz, dv
