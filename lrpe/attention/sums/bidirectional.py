"""Σ_s w_ts (q_t·k_s) v_s over all keys: as q (kᵀ v) if every weight is 1, else as two causal sums."""

from collections.abc import Callable

import torch
from torch import Tensor

from lrpe.attention.sums.causal import causal_sums
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.autograd import Differentiable
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
    out = _SumOverAll.of(_by_group(q, k.shape[1]), k, v)[0].reshape(*q.shape[:3], v.shape[-1])
    if problem.delta_q is None or problem.delta_k is None:
        return Sums(out)
    delta_q, delta_k = (q, k) if problem.sums_scores else (problem.delta_q.to(dtype), problem.delta_k.to(dtype))
    z = delta_k.sum(-2, keepdim=True)
    return Sums(out, (_by_group(delta_q, k.shape[1]) @ z.mT).reshape(*q.shape[:3], 1))


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


def _by_group(x: Tensor, groups: int) -> Tensor:
    """(batch, heads, n, f) -> (batch, groups, heads per group · n, f): the heads of a group, one after another."""
    return x.unflatten(1, (groups, x.shape[1] // groups)).flatten(2, 3)


def _repeat(x: Tensor, q: Tensor) -> Tensor:
    """Repeat keys or values for the query heads, in the dtype of the sums."""
    return x.to(compute_dtype(q.dtype)).repeat_interleave(q.shape[1] // x.shape[1], 1)


@in_full_precision
def _of_itself(q: Tensor, k: Tensor) -> Tensor:
    """Return each token's score with itself, which both orders contain; (batch, heads, n, 1)."""
    return (q.to(compute_dtype(q.dtype)) * _repeat(k, q)).sum(-1, keepdim=True)
