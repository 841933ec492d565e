"""Σ_s (M_t q_t · M_s k_s) v_s and Δ_t = Σ_s q_t·k_s in one operation, for an M without learned parameters."""

from typing import TypeGuard

import torch
from torch import Tensor

from lrpe.attention.bidirectional import bidirectional_sum, by_group
from lrpe.attention.full_precision import in_full_precision
from lrpe.attention.weights import PairWeights
from lrpe.autograd import Differentiable, eager, one_at_a_time
from lrpe.encodings.encoding import Encoding, EncodingTable, PositionalEncoding, check_features, check_table
from lrpe.precision import compute_dtype


def can_fuse(encoding: PositionalEncoding, tables: tuple, q: Tensor, k: Tensor, v: Tensor) -> TypeGuard[Encoding]:
    """Return whether ``encoded_sum`` applies: M acts after φ, has an adjoint and no parameters; no half precision."""
    if not (eager() and type(encoding) is Encoding and encoding.acts == "after" and encoding.score_scale == 1):
        return False
    precise = q.dtype == k.dtype == v.dtype == compute_dtype(q.dtype)
    return precise and all(encoding.has_adjoint(table) for table in tables)


def encoded_sum(q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, tables: tuple) -> tuple[Tensor, Tensor]:
    """Return both sums over all keys: (batch, heads, n, e) and (batch, heads, n, 1)."""
    for x, table in zip((q, k), tables, strict=True):
        check_features(x, encoding.head_dim)
        check_table(table, x)
    return EncodedSum.of(q.to(v.dtype), k.to(v.dtype), v, encoding, tables)[:2]


class EncodedSum(Differentiable):
    """o = M q S with S = (M k)ᵀ v, and Δ = q zᵀ with z = Σ_s k_s.

    dS = (M q)ᵀ g, dq = Mᵀ (g Sᵀ) + g_Δ z, dk = Mᵀ (v dSᵀ) + g_Δᵀ q, dv = M k dS. Mᵀ and the second term are applied in
    the memory of the first product; as separate operations, M, the sum and Δ would allocate dq and dk three times.
    """

    @staticmethod
    @in_full_precision
    def forward(q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, tables: tuple[EncodingTable, EncodingTable]):
        Q, K = encoding.transform(q, tables[0]), encoding.transform(k, tables[1])
        S, z = K.mT @ v, k.sum(-2, keepdim=True)
        out, total = by_group(Q, k.shape[1]) @ S, by_group(q, k.shape[1]) @ z.mT
        return out.reshape(*q.shape[:3], v.shape[-1]), total.reshape(*q.shape[:3], 1), Q, K, S, z

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        *qkv, ctx.encoding, ctx.tables = inputs
        ctx.save_for_backward(*qkv, *output[2:])
        ctx.mark_non_differentiable(*output[2:])  # Q, K, S and z are outputs only so that they can be saved
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *grads: Tensor | None):
        q, k, v, Q, K, S, z = ctx.saved_tensors
        g = q.new_zeros(*q.shape[:3], v.shape[-1]) if grads[0] is None else grads[0]
        g_total = q.new_zeros(*q.shape[:3], 1) if grads[1] is None else grads[1]
        # A second derivative or a batched gradient rules out the in-place operations of `gradients`.
        if torch.is_grad_enabled() or not one_at_a_time(g, g_total):
            return *_gradients_in_parts(q, k, v, g, g_total, ctx.encoding, ctx.tables), None, None
        return *EncodedSum.gradients(q, k, v, Q, K, S, z, g, g_total, ctx.encoding, ctx.tables), None, None

    @staticmethod
    @in_full_precision
    def gradients(q, k, v, Q, K, S, z, g, g_total, encoding, tables):
        groups = k.shape[1]
        g, g_total = by_group(g, groups), by_group(g_total, groups)
        dS = by_group(Q, groups).mT @ g
        dQ = (g @ S.mT).reshape(Q.shape)
        dq = by_group(encoding.adjoint_(dQ, tables[0]), groups).addcmul_(g_total, z).reshape(q.shape)
        dk = encoding.adjoint_(v @ dS.mT, tables[1]).add_(g_total.mT @ by_group(q, groups))
        return dq, dk, K @ dS


def _gradients_in_parts(q, k, v, g, g_total, encoding, tables):
    """Return the gradients by autograd from separate sums, which overwrite nothing and are differentiable."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # view_as: if k was computed from q, the gradient of q must not include the path through k.
        q, k, v = inputs = tuple(x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in (q, k, v))
        out, _ = bidirectional_sum(encoding.query(q, tables[0]), encoding.key(k, tables[1]), v, PairWeights())
        _, total = bidirectional_sum(q, k, v[..., :0], PairWeights(), total=True)
    return torch.autograd.grad((out, total), inputs, (g, g_total), create_graph=again)
