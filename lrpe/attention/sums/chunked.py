"""The causal sums in linear time: within a chunk by its scores, across chunks by the state S = Σ k_s v_sᵀ.

With A the weighted scores of a chunk and S the state before it, o = A v + q S. For the gradient g of o, with
dA = g vᵀ under the same weights and dS the gradient of the state after the chunk,

    dq = dA k + g Sᵀ        dk = dAᵀ q + v dSᵀ        dv = Aᵀ g + k dS

so only q, k and v are kept for the backward pass, which computes the states again. Δ_t = q'_t·z_t needs no scores:
z_t = Σ_{s ≤ t} w_ts k'_s is the product of the weights and the keys. Its gradients are dq'_t = g_t z_t and, with
dz_t = g_t q'_t, dk'_s = Σ_{t ≥ s} w_ts dz_t.

There are two forms: all chunks at once, and the same without loops or in-place operations, for exporters.
"""

import torch
from torch import Tensor

from lrpe.attention.sums.chunks import ChunkLayout, Chunks, ChunkWeights, chunk_links
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.precision import in_float64, in_full_precision

Gradients = dict[str, Tensor]  # by the name of a field of Problem


@in_full_precision
def sum_forward(problem: Problem) -> Sums:
    """Return o, Δ and the last state."""
    chunks = Chunks.of(problem)
    before, S = _states_before(chunks, problem.S)
    out = torch.bmm(chunks.scores(), chunks.V).baddbmm_(chunks.Q_before, before)
    out = chunks.layout.from_queries(out)
    if problem.delta_q is None:
        return Sums(out, None, S, None)
    Q, K = _delta_features(problem, chunks)
    z_t, z = _running_keys(K, problem.z, chunks)
    delta = chunks.layout.times_keys(Q, z_t).sum(-1, keepdim=True)
    return Sums(out, chunks.layout.from_queries(delta), S, z)


@in_full_precision
def sum_backward(problem: Problem, g: Sums, wants_decay: bool) -> Gradients:
    """Return the gradients of the problem's tensors, given those of its solution."""
    assert g.S is not None
    chunks = Chunks.of(problem)
    layout, weights = chunks.layout, chunks.weights
    G = layout.queries(g.out.to(chunks.Q.dtype))
    before, S_last = _states_before(chunks, problem.S)
    dA = layout.mask_(torch.bmm(G, chunks.V.mT), weights)
    dQ = layout.scale(torch.bmm(G, before.mT), weights and weights.before).baddbmm_(dA, chunks.K)
    after = torch.bmm(chunks.Q_before.mT, G, out=before)  # reuses the memory of `before`, which is no longer needed
    dS = _accumulate_(after, g.S, layout, weights, backward=True)
    dK = layout.scale(torch.bmm(chunks.V, after.mT), weights and weights.after).baddbmm_(dA.mT, chunks.Q)
    A = layout.mask_(torch.bmm(chunks.Q, chunks.K.mT, out=dA), weights)  # computed again, in the memory of dA
    dV = torch.bmm(A.mT, G).baddbmm_(chunks.K_after, after)
    gradients = {"q": layout.from_queries(dQ), "k": layout.from_keys(dK), "v": layout.from_keys(dV), "S": dS}
    of_last = (g.S * S_last).sum((-1, -2))
    if problem.delta_q is not None:
        of_delta, z_last = _delta_backward(problem, chunks, g)
        gradients |= of_delta
        assert g.z is not None
        of_last = of_last + (g.z * z_last).sum(-1)
    if wants_decay:
        gradients["log_decay"] = _decay_gradient(problem, gradients, of_last)
    return gradients


def _delta_features(problem: Problem, chunks: Chunks) -> tuple[Tensor, Tensor]:
    """Return Δ's queries (M, group · C, f') and keys (M, C, f')."""
    assert problem.delta_q is not None
    assert problem.delta_k is not None
    dtype = chunks.Q.dtype
    return chunks.layout.queries(problem.delta_q.to(dtype)), chunks.layout.keys(problem.delta_k.to(dtype))


def _running_keys(K: Tensor, z: Tensor | None, chunks: Chunks) -> tuple[Tensor, Tensor]:
    """Return z_t per token, (M, C, f'), and the last one, (batch, heads, f')."""
    assert chunks.weights is not None  # causal_sums gives a sum with Δ weights
    layout, weights = chunks.layout, chunks.weights
    Z = layout.scale(K, weights.after).sum(1, keepdim=True)
    last = _accumulate_(Z, None if z is None else z.unsqueeze(-2), layout, weights)
    return layout.mix(weights.inside, K, weights.before, Z), last.squeeze(-2)


def _delta_backward(problem: Problem, chunks: Chunks, g: Sums) -> tuple[Gradients, Tensor]:
    """Return the gradients of Δ's features and of z, and the last z."""
    assert chunks.weights is not None
    assert g.delta is not None
    assert g.z is not None
    layout, weights = chunks.layout, chunks.weights
    Q, K = _delta_features(problem, chunks)
    z_t, z_last = _running_keys(K, problem.z, chunks)
    G = layout.queries(g.delta.to(Q.dtype))
    dz_t = (Q * G).view(layout.total, layout.group, layout.chunk, Q.shape[-1]).sum(1)
    after = layout.scale(dz_t, weights.before).sum(1, keepdim=True)
    dz = _accumulate_(after, g.z.unsqueeze(-2), layout, weights, backward=True)
    dK = layout.mix(weights.inside.mT, dz_t, weights.after, after)
    dQ = layout.times_keys(G, z_t)
    gradients = {"delta_q": layout.from_queries(dQ), "delta_k": layout.from_keys(dK), "z": dz.squeeze(-2)}
    return gradients, z_last


def _decay_gradient(problem: Problem, gradients: Gradients, of_last: Tensor) -> Tensor:
    """Return the gradient of the log-decay, in its shape.

    A term of query t is proportional to exp(c_t) and one of key s to exp(-c_s), so the gradient of the summed
    log-decay c_t is dq_t·q_t - dk_t·k_t; the last state adds its own. A step is part of every later c_t.
    """
    assert problem.log_decay is not None
    heads = problem.k.shape[1]
    of_c = 0
    for name, sign in (("q", 1), ("delta_q", 1), ("k", -1), ("delta_k", -1)):
        if name in gradients:
            products = (gradients[name] * getattr(problem, name)).sum(-1)  # (batch, heads or key heads, n)
            of_c = of_c + sign * in_float64(products.unflatten(1, (heads, products.shape[1] // heads)).sum(2))
    assert isinstance(of_c, Tensor)
    of_steps = of_c.flip(-1).cumsum(-1).flip(-1) + in_float64(of_last)[..., None]
    return of_steps.sum_to_size(problem.log_decay.shape).to(problem.log_decay)


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


def _states_before(chunks: Chunks, S: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the state before each chunk, (M, f, e), and the last state, (batch, heads, f, e)."""
    X = torch.bmm(chunks.K_after.mT, chunks.V)
    return X, _accumulate_(X, S, chunks.layout, chunks.weights)


@in_full_precision
def sum_out_of_place(problem: Problem) -> Sums:
    """Compute ``sum_forward`` without loops or in-place operations, for exporters and second derivatives.

    The states of all N chunks come from one N × N product, which costs little only up to a few hundred chunks.
    """
    chunks = Chunks.of(problem)
    layout, dtype = chunks.layout, chunks.Q.dtype
    log_decay = problem.q.new_zeros(1, 1, 1) if problem.log_decay is None else problem.log_decay
    c = layout.summed_decay(log_decay, problem.starts)
    weights = ChunkWeights.of(c, dtype, problem.q.device)
    links = chunk_links(c, layout.chunks, dtype, problem.q.device)

    def linked(added: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
        added = added.view(layout.batch, layout.heads, layout.chunks, *added.shape[1:])
        first = torch.zeros_like(added[:, :, 0]) if first is None else first.to(added.dtype)
        parts = torch.cat([first[:, :, None], added], 2)
        before = torch.einsum("bhcd,bhdfe->bhcfe", links.expand(*parts.shape[:2], -1, -1), parts)
        return before.flatten(0, 2), before[:, :, -1] * weights.carry[:, :, -1] + added[:, :, -1]

    before, S = linked(torch.bmm(chunks.K_after.mT, chunks.V), problem.S)
    A = layout.scale(torch.bmm(chunks.Q, chunks.K.mT), weights.inside)
    out = layout.from_queries(torch.bmm(A, chunks.V) + torch.bmm(chunks.Q_before, before))
    if problem.delta_q is None:
        return Sums(out, None, S, None)
    Q, K = _delta_features(problem, chunks)
    of_z = None if problem.z is None else problem.z.unsqueeze(-2)
    Z, z = linked(layout.scale(K, weights.after).sum(1, keepdim=True), of_z)
    A = layout.scale(torch.bmm(Q, K.mT), weights.inside)
    delta = A.sum(-1, keepdim=True) + torch.bmm(layout.scale(Q, weights.before), Z.mT)
    return Sums(out, layout.from_queries(delta), S, z.squeeze(-2))
