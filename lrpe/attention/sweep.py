"""The causal sum where every weight is 1, one chunk of all heads at a time: what a chunk needs is still in the cache.

o = A v + q S within a chunk, and S ← S + kᵀ v from chunk to chunk; the gradients are those of ``causal``. dq goes with
S, from the first chunk to the last; dk and dv go with dS, from the last to the first.
"""

import torch
from torch import Tensor

from lrpe.attention.frame import Frame
from lrpe.encodings.precision import compute_dtype

CHUNK = 32  # tokens of a chunk, at the most
HEADS = 8  # with fewer, a chunk is too little work for a call


def sweeps(q: Tensor, k: Tensor, frame: Frame) -> bool:
    """Whether the sum is fastest so: on a processor with a cache, with heads enough to fill a chunk."""
    return frame.plain and q.shape[1] == k.shape[1] and q.device.type == "cpu" and k.shape[0] * k.shape[1] >= HEADS


def sweep_forward(q: Tensor, k: Tensor, v: Tensor, S: Tensor | None, chunk: int) -> tuple[Tensor, Tensor]:
    """Σ (q·k) v, and the last state."""
    dtype = compute_dtype(q.dtype)
    out, S = q.new_empty(*q.shape[:3], v.shape[-1], dtype=dtype), start(S, k, v, dtype)
    for Q, K, V, o in zip(*(cut(x.to(dtype), chunk) for x in (q, k, v, out)), strict=True):
        A = torch.bmm(Q, K.mT).tril_()
        o.copy_(torch.bmm(A, V).baddbmm_(Q, S))
        S.baddbmm_(K.mT, V)
    return out, S.unflatten(0, k.shape[:2])


def sweep_backward(g: Tensor, g_S: Tensor, q: Tensor, k: Tensor, v: Tensor, S: Tensor | None, chunk: int):
    """The gradients of q, k, v and S, for gradients of the sum and the last state."""
    dtype = compute_dtype(q.dtype)
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    S, dS = start(S, k, v, dtype), start(g_S, k, v, dtype)
    G_, Q_, K_, V_ = (cut(x.to(dtype), chunk) for x in (g, q, k, v))
    dQ_, dK_, dV_ = (cut(x, chunk) for x in (dq, dk, dv))
    dA_ = []
    for G, K, V, dQ in zip(G_, K_, V_, dQ_, strict=True):
        dA = torch.bmm(G, V.mT).tril_()
        dQ.copy_(torch.bmm(dA, K).baddbmm_(G, S.mT))
        S.baddbmm_(K.mT, V)
        dA_.append(dA)
    for G, Q, K, V, dK, dV, dA in zip(*map(reversed, (G_, Q_, K_, V_, dK_, dV_, dA_)), strict=True):
        dK.copy_(torch.bmm(dA.mT, Q).baddbmm_(V, dS.mT))
        A = torch.bmm(Q, K.mT, out=dA).tril_()
        dV.copy_(torch.bmm(A.mT, G).baddbmm_(K, dS))
        dS.baddbmm_(Q.mT, G)
    return dq, dk, dv, dS.unflatten(0, k.shape[:2])


def cut(x: Tensor, chunk: int) -> tuple[Tensor, ...]:
    """(batch, heads, n, d) -> its chunks (batch · heads, C, d), the last of which may be shorter."""
    return x.flatten(0, 1).split(min(chunk, CHUNK), 1)


def start(S: Tensor | None, k: Tensor, v: Tensor, dtype: torch.dtype) -> Tensor:
    """The state to begin with, (batch · heads, f, e), in memory of its own."""
    shape = (*k.shape[:2], k.shape[-1], v.shape[-1])
    state = k.new_zeros(shape, dtype=dtype) if S is None else k.new_empty(shape, dtype=dtype).copy_(S)
    return state.flatten(0, 1)
