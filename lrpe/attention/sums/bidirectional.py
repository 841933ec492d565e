"""Σ_s w_ts (q_t·k_s) v_s over all keys: as q (kᵀ v) if every weight is 1, else as two causal sums."""

from collections.abc import Callable
from typing import TypeGuard

import torch
from torch import Tensor

from lrpe.attention.sums.causal import causal_sums
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.autograd import Differentiable, eager, one_at_a_time
from lrpe.encodings.encoding import Encoding, EncodingTable, PositionalEncoding, check_features, check_table
from lrpe.precision import compute_dtype, in_full_precision


def bidirectional_sums(problem: Problem, causal: Callable[[Problem], Sums] = causal_sums) -> Sums:
    """Return o and Δ over all keys, in time and memory linear in n; ``causal`` computes the sum in each direction."""
    if problem.log_decay is None:
        return _sums_over_all(problem)
    ahead, back = causal(problem), causal(reversed_tokens(problem))
    out = ahead.out + back.out.flip(2) - _of_itself(problem.q, problem.k) * _repeat(problem.v, problem.q)
    if ahead.delta is None or back.delta is None:
        return Sums(out)
    assert problem.delta_q is not None
    assert problem.delta_k is not None
    return Sums(out, ahead.delta + back.delta.flip(2) - _of_itself(problem.delta_q, problem.delta_k))


def reversed_tokens(problem: Problem) -> Problem:
    """Return the problem of the tokens in reverse order.

    The step between two tokens belongs to the later one, so in reverse order each log-decay moves to the token before.
    """
    flipped = {
        name: tensor.flip(2)
        for name in ("q", "k", "v", "delta_q", "delta_k")
        if (tensor := getattr(problem, name)) is not None
    }
    if problem.sums_scores:  # by identity, which flipping twice would lose
        flipped |= {"delta_q": flipped["q"], "delta_k": flipped["k"]}
    log_decay = problem.log_decay
    if log_decay is not None and log_decay.shape[-1] > 1:
        log_decay = torch.cat([log_decay, log_decay[..., :1]], -1)[..., 1:].flip(-1)  # the first decays nothing
    return problem._replace(**flipped, log_decay=log_decay)


@in_full_precision
def _sums_over_all(problem: Problem) -> Sums:
    """o = q S with S = kᵀ v and Δ = q' z with z = Σ_s k'_s; all queries share S and z."""
    dtype = compute_dtype(problem.q.dtype)
    q, k, v = (x.to(dtype) for x in (problem.q, problem.k, problem.v))
    out = _SumOverAll.of(by_group(q, k.shape[1]), k, v)[0].reshape(*q.shape[:3], v.shape[-1])
    if problem.delta_q is None or problem.delta_k is None:
        return Sums(out)
    delta_q, delta_k = (q, k) if problem.sums_scores else (problem.delta_q.to(dtype), problem.delta_k.to(dtype))
    z = delta_k.sum(-2, keepdim=True)
    return Sums(out, (by_group(delta_q, k.shape[1]) @ z.mT).reshape(*q.shape[:3], 1))


class _SumOverAll(Differentiable):
    """o = q S with S = kᵀ v, and its gradients dS = qᵀ g, dq = g Sᵀ, dk = v dSᵀ, dv = k dS.

    Autograd's dk would be a transposed tensor, on which what comes before is slow. S is an output only so that it can
    be saved.
    """

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


def by_group(x: Tensor, groups: int) -> Tensor:
    """(batch, heads, n, f) -> (batch, groups, heads per group · n, f): the heads of a group, one after another."""
    return x.unflatten(1, (groups, x.shape[1] // groups)).flatten(2, 3)


def _repeat(x: Tensor, q: Tensor) -> Tensor:
    """Repeat keys or values for the query heads, in the dtype of the sums."""
    return x.to(compute_dtype(q.dtype)).repeat_interleave(q.shape[1] // x.shape[1], 1)


@in_full_precision
def _of_itself(q: Tensor, k: Tensor) -> Tensor:
    """Return each token's score with itself, which both orders contain; (batch, heads, n, 1)."""
    return (q.to(compute_dtype(q.dtype)) * _repeat(k, q)).sum(-1, keepdim=True)


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
        saved = q, k, v, *_ = ctx.saved_tensors
        g = q.new_zeros(*q.shape[:3], v.shape[-1]) if grads[0] is None else grads[0]
        g_total = q.new_zeros(*q.shape[:3], 1) if grads[1] is None else grads[1]
        # A second derivative or a batched gradient rules out the in-place operations of `gradients`.
        if torch.is_grad_enabled() or not one_at_a_time(g, g_total):
            return *_gradients_in_parts((q, k, v), g, g_total, ctx.encoding, ctx.tables), None, None
        return *EncodedSum.gradients(saved, g, g_total, ctx.encoding, ctx.tables), None, None

    @staticmethod
    @in_full_precision
    def gradients(saved, g, g_total, encoding, tables):
        q, k, v, Q, K, S, z = saved
        groups = k.shape[1]
        g, g_total = by_group(g, groups), by_group(g_total, groups)
        dS = by_group(Q, groups).mT @ g
        dQ = (g @ S.mT).reshape(Q.shape)
        dq = by_group(encoding.adjoint_(dQ, tables[0]), groups).addcmul_(g_total, z).reshape(q.shape)
        dk = encoding.adjoint_(v @ dS.mT, tables[1]).add_(g_total.mT @ by_group(q, groups))
        return dq, dk, K @ dS


def _gradients_in_parts(qkv, g, g_total, encoding, tables):
    """Return the gradients by autograd from separate sums, which overwrite nothing and are differentiable."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # view_as: if k was computed from q, the gradient of q must not include the path through k.
        q, k, v = inputs = tuple(x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in qkv)
        problem = Problem(encoding.query(q, tables[0]), encoding.key(k, tables[1]), v, q, k)
        sums = bidirectional_sums(problem)
    assert sums.delta is not None
    return torch.autograd.grad((sums.out, sums.delta), inputs, (g, g_total), create_graph=again)
