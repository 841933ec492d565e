"""A sequence cut into chunks: how tensors are laid out, and the weights of pairs inside and across chunks."""

from typing import NamedTuple

import torch
from torch import Tensor

from lrpe.attention.sums.problem import Problem
from lrpe.autograd import eager
from lrpe.precision import compute_dtype, in_float64


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
