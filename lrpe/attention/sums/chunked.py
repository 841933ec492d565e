"""The causal sums in linear time: within a chunk by its scores, across chunks by the state S = Σ k_s v_sᵀ.

With A the weighted scores of a chunk and S the state before it, o = A v + q S. For the gradient g of o, with
dA = g vᵀ under the same weights and dS the gradient of the state after the chunk,

    dq = dA k + g Sᵀ        dk = dAᵀ q + v dSᵀ        dv = Aᵀ g + k dS

so only q, k and v are kept for the backward pass, which computes the states again. Δ_t = q'_t·z_t needs no scores:
z_t = Σ_{s ≤ t} w_ts k'_s is the product of the weights and the keys. Its gradients are dq'_t = g_t z_t and, with
dz_t = g_t q'_t, dk'_s = Σ_{t ≥ s} w_ts dz_t.

There are two forms: all chunks at once, and the same without loops or in-place operations, for exporters.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lrpe.attention.sums.problem import Problem, Sums
from lrpe.autograd import eager
from lrpe.precision import compute_dtype, in_float64, in_full_precision


class ChunkWeights(NamedTuple):
    """The weights of pairs in N chunks of C tokens. Every exponent is a sum of log-decays, so none exceeds 1."""

    inside: Tensor  # (batch, heads, N, C, C): from a key to a query of its chunk, 0 for later keys
    before: Tensor  # (batch, heads, N, C, 1): from the state before the chunk to a query
    after: Tensor  # (batch, heads, N, C, 1): from a key to the state after the chunk
    carry: Tensor  # (batch, heads, N, 1, 1): from the state before the chunk to the state after it

    @classmethod
    def of(cls, c: Tensor, dtype: torch.dtype, device: torch.device) -> "ChunkWeights":
        """Return the weights for the summed log-decay c (batch, heads, N, C) of ``summed_decay``."""
        end = c[..., -1:]
        outer = [x.to(device, dtype).exp() for x in (c, end - c, end)]
        return cls(_exp_lower(c, dtype, device), *(x[..., None] for x in outer))


def _exp_lower(c: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return exp(c_t - c_s) for s ≤ t, else 0."""
    if eager() and not c.requires_grad:
        difference = _difference(c, dtype, device)
        return difference.clamp_(max=0).exp_().tril_()  # in place: there are C² numbers per chunk
    return _difference(c, dtype, device).clamp(max=0).exp().tril()


def _difference(c: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return c_t - c_s, rounded once: the rounding error of c in float32 would grow with c, not with the difference."""
    high = c.to(device, dtype)
    difference = high[..., :, None] - high[..., None, :]
    if dtype == c.dtype:
        return difference
    low = (c - high.to(c)).to(device, dtype)
    return difference + (low[..., :, None] - low[..., None, :])


def chunk_links(c: Tensor, chunks: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the weights, in the state before each chunk, of the initial state and each chunk's contribution.

    They are (batch, heads, N, 1 + N).
    """
    end = c[..., -1].expand(*c.shape[:2], chunks).cumsum(-1)  # the log-decay up to the end of each chunk
    end = torch.nn.functional.pad(end, (1, 0))
    return (end[..., :-1, None] - end[..., None, :]).clamp(max=0).exp().tril().to(device, dtype)


class ChunkLayout(NamedTuple):
    """The layout of (batch, heads, n, d) tensors in M = batch · key heads · N chunks of C tokens each."""

    batch: int
    heads: int  # key heads
    group: int  # query heads per key head
    chunks: int  # N
    chunk: int  # C
    n: int  # tokens
    pad: int  # zeros in front, so that the last chunk ends with the last token

    @classmethod
    def of(cls, q: Tensor, k: Tensor, chunk: int) -> "ChunkLayout":
        n = k.shape[-2]
        if torch.compiler.is_exporting():
            # An exporter treats a size of 1 in its example as a constant. Three chunks or more avoid that, also for the
            # N - 1 of chunk_links. It also turns -(-n // chunk) into a division that rounds towards 0.
            chunks = (n + 3 * chunk - 1) // chunk
        else:
            chunk = min(chunk, max(n, 1))
            chunks = max(-(-n // chunk), 1)
        return cls(k.shape[0], k.shape[1], q.shape[1] // k.shape[1], chunks, chunk, n, chunks * chunk - n)

    @property
    def total(self) -> int:
        """M, the number of chunks over all batch rows and key heads."""
        return self.batch * self.heads * self.chunks

    def keys(self, x: Tensor) -> Tensor:
        """(batch, heads, n, d) -> (M, C, d)."""
        return _make_contiguous(self.pad_front(x).reshape(self.total, self.chunk, x.shape[-1]))

    def queries(self, x: Tensor) -> Tensor:
        """(batch, heads · group, n, d) -> (M, group · C, d)."""
        if self.group == 1:
            return self.keys(x)
        x = self.pad_front(x).unflatten(2, (self.chunks, self.chunk)).unflatten(1, (self.heads, self.group))
        return _make_contiguous(x.transpose(2, 3).reshape(self.total, self.group * self.chunk, x.shape[-1]))

    def from_keys(self, x: Tensor) -> Tensor:
        return self.drop_front(x.reshape(self.batch, self.heads, self.chunks * self.chunk, x.shape[-1]))

    def from_queries(self, x: Tensor) -> Tensor:
        if self.group == 1:
            return self.from_keys(x)
        x = x.view(self.batch, self.heads, self.chunks, self.group, self.chunk, x.shape[-1]).transpose(2, 3)
        return self.drop_front(x.reshape(self.batch, self.heads * self.group, self.chunks * self.chunk, x.shape[-1]))

    def pad_front(self, x: Tensor) -> Tensor:
        """Put zeros in front of (batch, heads, n, d)."""
        if torch.compiler.is_exporting():  # by index, so that the exported graph does not branch on the size of pad
            after_zeros = torch.nn.functional.pad(x, (0, 0, 1, 0))
            return after_zeros.index_select(2, self.token_indices(x).clamp(min=-1) + 1)
        return torch.nn.functional.pad(x, (0, 0, self.pad, 0)) if self.pad else x

    def drop_front(self, x: Tensor) -> Tensor:
        """Drop the rows in front of (batch, heads, N · C, d)."""
        if torch.compiler.is_exporting():
            return x.index_select(2, torch.arange(self.n, device=x.device) + self.pad)
        return x[:, :, self.pad :]

    def token_indices(self, x: Tensor) -> Tensor:
        """Return the index of the token in each of the N · C rows; it is negative for padding."""
        return torch.arange(self.chunks * self.chunk, device=x.device) - self.pad

    def summed_decay(self, log_decay: Tensor, starts: bool) -> Tensor:
        """Return the log-decay summed from the beginning of each chunk, in float64: (batch, heads, N, C).

        If all tokens share it, all chunks are alike and N is 1, unless there is an initial state: its distance to the
        first token must not count the padding in front.
        """
        log_decay = in_float64(log_decay)
        if log_decay.shape[-1] == 1 and not starts:
            steps = torch.arange(1, self.chunk + 1, dtype=torch.float64, device=log_decay.device)
            return (log_decay * steps).unsqueeze(2)
        log_decay = log_decay.expand(-1, -1, self.n)
        return self.pad_front(log_decay.unsqueeze(-1)).unflatten(2, (self.chunks, self.chunk)).squeeze(-1).cumsum(-1)

    def scale(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Multiply x (M, rows, d) by a weight (batch or 1, heads or 1, N or 1, C, d or 1), alike in a group."""
        if weight is None:
            return x
        group = x.shape[1] // self.chunk
        rows = x.view(self.batch, self.heads, self.chunks, group, self.chunk, x.shape[-1])
        return (rows * weight.unsqueeze(3)).view(x.shape)

    def mix(self, inside: Tensor, x: Tensor, edge: Tensor, state: Tensor) -> Tensor:
        """Return inside x + edge state for x (M, C, d), a state per chunk (M, 1, d), and weights of all chunks."""
        x, state = (y.view(self.batch, self.heads, self.chunks, *y.shape[1:]) for y in (x, state))
        return torch.matmul(inside, x).addcmul_(edge, state).view(self.total, self.chunk, x.shape[-1])

    def times_keys(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply rows of queries (M, group · C, d or 1) by those of keys (M, C, d), alike in a group."""
        x = x.view(self.total, self.group, self.chunk, x.shape[-1])
        return (x * y.unsqueeze(1)).view(self.total, self.group * self.chunk, y.shape[-1])

    def mask_(self, A: Tensor, weights: ChunkWeights | None) -> Tensor:
        """Weight the scores (M, group · C, C) of each chunk in place; keys after the query get 0."""
        if weights is None:
            A.view(-1, self.chunk, self.chunk).tril_()
        else:
            A.view(self.batch, self.heads, self.chunks, self.group, self.chunk, self.chunk).mul_(
                weights.inside.unsqueeze(3)
            )
        return A


def _make_contiguous(x: Tensor) -> Tensor:
    """Copy x for an exporter, which cannot infer the strides of a reshaped tensor with symbolic sizes."""
    return x.clone(memory_format=torch.contiguous_format) if torch.compiler.is_exporting() else x


class Chunks(NamedTuple):
    """Queries, keys and values in chunks, with their weights."""

    Q: Tensor  # (M, group · C, f)
    K: Tensor  # (M, C, f)
    V: Tensor  # (M, C, e)
    Q_before: Tensor  # queries, weighted for the state before the chunk
    K_after: Tensor  # keys, weighted for the state after the chunk
    weights: ChunkWeights | None
    layout: ChunkLayout

    @classmethod
    def of(cls, problem: Problem) -> "Chunks":
        dtype, device = compute_dtype(problem.q.dtype), problem.q.device
        layout = ChunkLayout.of(problem.q, problem.k, problem.chunk)
        Q, K, V = (
            layout.queries(problem.q.to(dtype)),
            layout.keys(problem.k.to(dtype)),
            layout.keys(problem.v.to(dtype)),
        )
        if problem.log_decay is None:
            return cls(Q, K, V, Q, K, None, layout)
        c = layout.summed_decay(problem.log_decay, problem.starts)
        weights = ChunkWeights.of(c, dtype, device)
        return cls(Q, K, V, layout.scale(Q, weights.before), layout.scale(K, weights.after), weights, layout)

    def scores(self) -> Tensor:
        """Return A, the weighted scores within each chunk, (M, group · C, C)."""
        return self.layout.mask_(torch.bmm(self.Q, self.K.mT), self.weights)


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
