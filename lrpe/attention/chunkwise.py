"""Σ_{s ≤ t} (q_t·k_s) v_s in linear time: within a chunk by its scores, across chunks by the state S = Σ k_s v_sᵀ.

With A the weighted scores of a chunk and S the state before it, o = A v + q S. For the gradient g of o, with
dA = g vᵀ under the same weights and dS the gradient of the state after the chunk,

    dq = dA k + g Sᵀ        dk = dAᵀ q + v dSᵀ        dv = Aᵀ g + k dS

so only q, k and v are kept for the backward pass, which computes the states again.
"""

import torch
from torch import Tensor

from lrpe.attention.chunks import ChunkLayout, Chunks
from lrpe.attention.full_precision import in_full_precision
from lrpe.attention.weights import ChunkWeights, PairWeights, chunk_links
from lrpe.precision import compute_dtype

_LOOP_CHUNK = 32  # largest chunk of the loop, so that its tensors stay in the processor's cache
_LOOP_HEADS = 8  # smallest batch · heads for the loop; below it, calls cost more than the work of a chunk


def _accumulate_(
    X: Tensor, first: Tensor | None, layout: ChunkLayout, weights: ChunkWeights | None, backward: bool = False
) -> Tensor:
    """Replace each chunk's contribution to the state by the state before it (after it, if ``backward``).

    X is (M, f, e) and overwritten, since it is as large as all states. Returns the final state, (batch, heads, f, e).
    """
    X = X.view(layout.batch, layout.heads, layout.chunks, *X.shape[1:])
    state = X.new_zeros(X[:, :, 0].shape) if first is None else first.to(X.dtype, copy=True)
    carry = None if weights is None else weights.carry.expand(-1, -1, layout.chunks, 1, 1).unbind(2)
    for c in reversed(range(layout.chunks)) if backward else range(layout.chunks):
        added = X[:, :, c]
        following = state + added if carry is None else torch.addcmul(added, state, carry[c])
        added.copy_(state)
        state = following
    return state


def _states_before(c: Chunks, S: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the state before each chunk, (M, f, e), and the last state, (batch, heads, f, e)."""
    X = torch.bmm(c.K_after.mT, c.V)
    return X, _accumulate_(X, S, c.layout, c.weights)


def _key_sums_before(c: Chunks, z: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the sum of keys before each chunk, (M, f, 1), and the last sum, (batch, heads, f)."""
    Z = c.K_after.sum(1)[..., None]
    return Z, _accumulate_(Z, None if z is None else z[..., None], c.layout, c.weights)[..., 0]


@in_full_precision
def sum_forward(
    q, k, v, S, z, gap, pairs: PairWeights, chunk: int, total: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return Σ (q·k) v, Σ q·k if ``total`` (else width 0), the last state S and the last sum of keys z."""
    if loops_over_chunks(q, k, pairs) and not total:
        out, S_last = _loop_forward(q, k, v, S, chunk)
        return out, out.new_empty(*out.shape[:3], 0), S_last, S_last.new_empty(*S_last.shape[:2], 0)
    c = Chunks.of(q, k, v, pairs, gap, chunk)
    before, S_last = _states_before(c, S)
    A = c.scores()
    out = torch.bmm(A, c.V).baddbmm_(c.Q_before, before)
    if total:
        Z, z_last = _key_sums_before(c, z)
        sums = A.sum(-1, keepdim=True).baddbmm_(c.Q_before, Z)
    else:
        sums, z_last = out.new_empty(*out.shape[:2], 0), S_last.new_empty(*S_last.shape[:2], 0)
    return c.layout.from_queries(out), c.layout.from_queries(sums), S_last, z_last


@in_full_precision
def sum_backward(
    g, g_sums, g_S, g_z, q, k, v, S, z, gap, pairs: PairWeights, chunk: int, total: bool
) -> tuple[Tensor, ...]:
    """Return the gradients of q, k, v, S and z, given those of the results of ``sum_forward``."""
    if loops_over_chunks(q, k, pairs) and not total:
        return *_loop_backward(g, g_S, q, k, v, S, chunk), torch.zeros_like(g_z)
    c = Chunks.of(q, k, v, pairs, gap, chunk)
    G = c.layout.queries(g.to(c.Q.dtype))
    before, _ = _states_before(c, S)
    dA = torch.bmm(G, c.V.mT)
    dQ_before = torch.bmm(G, before.mT)
    if total:
        G_sums = c.layout.queries(g_sums.to(c.Q.dtype))
        Z, _ = _key_sums_before(c, z)
        dA += G_sums
        dQ_before.addcmul_(G_sums, Z.mT)
        after_z = torch.bmm(c.Q_before.mT, G_sums)
        dz = _accumulate_(after_z, g_z[..., None], c.layout, c.weights, backward=True)[..., 0]
    else:
        after_z, dz = None, torch.zeros_like(g_z)
    c.layout.mask_(dA, c.weights)
    after = torch.bmm(c.Q_before.mT, G, out=before)  # reuses the memory of `before`, which is no longer needed
    dS = _accumulate_(after, g_S, c.layout, c.weights, backward=True)
    dK_after = torch.bmm(c.V, after.mT)
    if after_z is not None:
        dK_after += after_z.mT
    if c.weights is not None:
        dQ_before, dK_after = c.layout.scale(dQ_before, c.weights.before), c.layout.scale(dK_after, c.weights.after)
    dQ = dQ_before.baddbmm_(dA, c.K)
    dK = dK_after.baddbmm_(dA.mT, c.Q)
    A = c.layout.mask_(torch.bmm(c.Q, c.K.mT, out=dA), c.weights)  # computed again, in the memory of dA
    dV = torch.bmm(A.mT, G).baddbmm_(c.K_after, after)
    dq, dk, dv = (
        c.layout.from_queries(dQ).to(q.dtype),
        c.layout.from_keys(dK).to(k.dtype),
        c.layout.from_keys(dV).to(v.dtype),
    )
    return dq, dk, dv, dS, dz


@in_full_precision
def sum_out_of_place(
    q, k, v, S, z, gap, pairs: PairWeights, chunk: int, total: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute ``sum_forward`` without loops or in-place operations, for exporters and second derivatives.

    The states of all N chunks come from one N × N product, which costs little only up to a few hundred chunks.
    """
    c = Chunks.of(q, k, v, pairs, gap, chunk)
    links = chunk_links(*c.layout.locate(pairs, gap, q.device), c.Q.dtype)

    def linked(added: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
        added = added.view(c.layout.batch, c.layout.heads, c.layout.chunks, *added.shape[1:])
        first = torch.zeros_like(added[:, :, 0]) if first is None else first.to(added.dtype)
        parts = torch.cat([first[:, :, None], added], 2)
        before = torch.einsum("bhcd,bhdfe->bhcfe", links.expand(*parts.shape[:2], -1, -1), parts)
        carry = 1 if c.weights is None else c.weights.carry[:, :, -1]
        return before.flatten(0, 2), before[:, :, -1] * carry + added[:, :, -1]

    before, S_last = linked(torch.bmm(c.K_after.mT, c.V), S)
    everyone = torch.ones(1, 1, 1, c.layout.chunk, c.layout.chunk, dtype=c.Q.dtype, device=q.device).tril()
    A = c.layout.scale(torch.bmm(c.Q, c.K.mT), everyone if c.weights is None else c.weights.inside)
    out = torch.bmm(A, c.V) + torch.bmm(c.Q_before, before)
    if total:
        Z, z_last = linked(c.K_after.sum(1)[..., None], None if z is None else z[..., None])
        sums = A.sum(-1, keepdim=True) + torch.bmm(c.Q_before, Z)
        z_last = z_last[..., 0]
    else:
        sums, z_last = out[..., :0], S_last.new_empty(*S_last.shape[:2], 0)
    return c.layout.from_queries(out), c.layout.from_queries(sums), S_last, z_last


def loops_over_chunks(q: Tensor, k: Tensor, pairs: PairWeights) -> bool:
    """Return whether a loop over chunks is faster: on a CPU without weights, if there are enough heads."""
    return (
        pairs.all_ones
        and q.shape[1] == k.shape[1]
        and q.device.type == "cpu"
        and k.shape[0] * k.shape[1] >= _LOOP_HEADS
    )


def _loop_forward(q: Tensor, k: Tensor, v: Tensor, S: Tensor | None, chunk: int) -> tuple[Tensor, Tensor]:
    """Return Σ (q·k) v and the last state."""
    dtype = compute_dtype(q.dtype)
    out, S = q.new_empty(*q.shape[:3], v.shape[-1], dtype=dtype), _copy_state(S, k, v, dtype)
    for Q, K, V, o in zip(*(_split(x.to(dtype), chunk) for x in (q, k, v, out)), strict=True):
        A = torch.bmm(Q, K.mT).tril_()
        o.copy_(torch.bmm(A, V).baddbmm_(Q, S))
        S.baddbmm_(K.mT, V)
    return out, S.unflatten(0, k.shape[:2])


def _loop_backward(g: Tensor, g_S: Tensor, q: Tensor, k: Tensor, v: Tensor, S: Tensor | None, chunk: int):
    """Return the gradients of q, k, v and S, given those of the sum and of the last state."""
    dtype = compute_dtype(q.dtype)
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    S, dS = _copy_state(S, k, v, dtype), _copy_state(g_S, k, v, dtype)
    G_, Q_, K_, V_ = (_split(x.to(dtype), chunk) for x in (g, q, k, v))
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
    return dq, dk, dv, dS.unflatten(0, k.shape[:2])


def _split(x: Tensor, chunk: int) -> tuple[Tensor, ...]:
    """Split (batch, heads, n, d) into chunks (batch · heads, C, d), of which the last may be shorter."""
    return x.flatten(0, 1).split(min(chunk, _LOOP_CHUNK), 1)


def _copy_state(S: Tensor | None, k: Tensor, v: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the initial state, (batch · heads, f, e), as a copy: the loop updates it in place."""
    shape = (*k.shape[:2], k.shape[-1], v.shape[-1])
    state = k.new_zeros(shape, dtype=dtype) if S is None else k.new_empty(shape, dtype=dtype).copy_(S)
    return state.flatten(0, 1)
