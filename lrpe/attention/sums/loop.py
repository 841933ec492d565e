"""The causal sum of equal weights as a loop over chunks: on a CPU with enough heads the fastest form.

Its tensors stay in the processor's cache, which those of all chunks at once do not.
"""

import torch
from torch import Tensor

from lrpe.attention.sums.problem import Problem, Sums
from lrpe.precision import compute_dtype, in_full_precision

_CHUNK = 32  # the largest chunk, so that its tensors stay in the cache


@in_full_precision
def loop_forward(problem: Problem) -> Sums:
    """Return Σ (q·k) v and the last state."""
    q, k, v = problem.q, problem.k, problem.v
    dtype = compute_dtype(q.dtype)
    out, S = q.new_empty(*q.shape[:3], v.shape[-1], dtype=dtype), _copy_state(problem.S, k, v, dtype)
    for Q, K, V, o in zip(*(_split(x.to(dtype), problem.chunk) for x in (q, k, v, out)), strict=True):
        A = torch.bmm(Q, K.mT).tril_()
        o.copy_(torch.bmm(A, V).baddbmm_(Q, S))
        S.baddbmm_(K.mT, V)
    return Sums(out, None, S.unflatten(0, k.shape[:2]), None)


@in_full_precision
def loop_backward(problem: Problem, g: Sums) -> dict[str, Tensor]:
    """Return the gradients of q, k, v and S, given those of the sum and of the last state."""
    q, k, v, chunk = problem.q, problem.k, problem.v, problem.chunk
    dtype = compute_dtype(q.dtype)
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    S, dS = _copy_state(problem.S, k, v, dtype), _copy_state(g.S, k, v, dtype)
    G_, Q_, K_, V_ = (_split(x.to(dtype), chunk) for x in (g.out, q, k, v))
    dQ_, dK_, dV_ = (_split(x, chunk) for x in (dq, dk, dv))
    dA_ = []
    for G, K, V, dQ in zip(G_, K_, V_, dQ_, strict=True):
        dA = torch.bmm(G, V.mT).tril_()
        dQ.copy_(torch.bmm(dA, K).baddbmm_(G, S.mT))
        S.baddbmm_(K.mT, V)
        dA_.append(dA)
    for G, Q, K, V, dK, dV, dA in zip(*map(reversed, (G_, Q_, K_, V_, dK_, dV_, dA_)), strict=True):
        dK.copy_(torch.bmm(dA.mT, Q).baddbmm_(V, dS.mT))
        A = torch.bmm(Q, K.mT, out=dA).tril_()  # overwrites dA, which this chunk no longer needs
        dV.copy_(torch.bmm(A.mT, G).baddbmm_(K, dS))
        dS.baddbmm_(Q.mT, G)
    return {"q": dq, "k": dk, "v": dv, "S": dS.unflatten(0, k.shape[:2])}


def _split(x: Tensor, chunk: int) -> tuple[Tensor, ...]:
    """Split (batch, heads, n, d) into chunks (batch · heads, C, d), of which the last may be shorter."""
    return x.flatten(0, 1).split(min(chunk, _CHUNK), 1)


def _copy_state(S: Tensor | None, k: Tensor, v: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the initial state, (batch · heads, f, e), as a copy: the loop updates it in place."""
    shape = (*k.shape[:2], k.shape[-1], v.shape[-1])
    state = k.new_zeros(shape, dtype=dtype) if S is None else k.new_empty(shape, dtype=dtype).copy_(S)
    return state.flatten(0, 1)
