"""Queries, keys and values in chunks: how they lie in memory, and the weights of their pairs."""

from typing import NamedTuple

import torch
from torch import Tensor

from lrpe.attention.weights import ChunkWeights, PairWeights, chunk_weights
from lrpe.precision import compute_dtype


class ChunkLayout(NamedTuple):
    """How (batch, heads, n, d) tensors lie in chunks: M = batch · key heads · N of them, each of C tokens."""

    batch: int
    heads: int  # key heads
    group: int  # queries a key head
    chunks: int  # N
    chunk: int  # C
    n: int  # tokens
    pad: int  # zeros in front, so that the last chunk ends with the last token

    @classmethod
    def of(cls, q: Tensor, k: Tensor, chunk: int) -> "ChunkLayout":
        n = k.shape[-2]
        if torch.compiler.is_exporting():
            # An exporter takes a size that is 1 in its example for a constant. So there are three chunks or more, as
            # chunk_weights has one less. It also turns -(-n // chunk) into a division that rounds towards 0.
            chunks = (n + 3 * chunk - 1) // chunk
        else:
            chunk = min(chunk, max(n, 1))
            chunks = max(-(-n // chunk), 1)
        return cls(k.shape[0], k.shape[1], q.shape[1] // k.shape[1], chunks, chunk, n, chunks * chunk - n)

    @property
    def total(self) -> int:
        """M."""
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
        if torch.compiler.is_exporting():  # by places: how much there is to pad is then no branch of the exported graph
            after_zeros = torch.nn.functional.pad(x, (0, 0, 1, 0))
            return after_zeros.index_select(2, self.token_indices(x).clamp(min=-1) + 1)
        return torch.nn.functional.pad(x, (0, 0, self.pad, 0)) if self.pad else x

    def drop_front(self, x: Tensor) -> Tensor:
        """Drop the rows in front of (batch, heads, N · C, d)."""
        if torch.compiler.is_exporting():
            return x.index_select(2, torch.arange(self.n, device=x.device) + self.pad)
        return x[:, :, self.pad :]

    def tokens(self, x: Tensor) -> Tensor:
        """(batch or 1, n) integers -> (batch or 1, N, C); zeros in front stand where the first token does."""
        return x.index_select(1, self.token_indices(x).clamp(min=0)).unflatten(1, (self.chunks, self.chunk))

    def token_indices(self, x: Tensor) -> Tensor:
        """Which token each of the N · C rows holds; below 0 in front of the first."""
        return torch.arange(self.chunks * self.chunk, device=x.device) - self.pad

    def weights(
        self, pairs: PairWeights, gap: Tensor | None, dtype: torch.dtype, device: torch.device
    ) -> ChunkWeights | None:
        """The weights of the pairs; ``gap`` (batch,) is how far the initial state stands before the first token."""
        if pairs.all_ones:
            return None
        if pairs.positions is None and pairs.sequences is None and gap is None:  # so there is no initial state
            p = torch.arange(self.chunk, device=device).view(1, 1, -1)  # every chunk is alike, one step after another
            return chunk_weights(p, torch.full((1, 1), -1, device=device), pairs, None, dtype)
        return chunk_weights(*self.locate(pairs, gap, device), dtype)

    def locate(self, pairs: PairWeights, gap: Tensor | None, device: torch.device):
        """The chunks' positions (batch, N, C), where the initial state stands (batch, 1), and the chunks' sequences."""
        p = pairs.token_positions(self.n, device)
        start = p[:, :1] - (1 if gap is None else gap[:, None])
        sequences = None if pairs.sequences is None else self.tokens(pairs.sequences)
        return self.tokens(p).expand(start.shape[0], -1, -1), start, pairs, sequences

    def scale(self, x: Tensor, weight: Tensor) -> Tensor:
        """x (M, rows, d) times a weight (batch or 1, heads or 1, N or 1, C, d or 1), for each query of the group."""
        group = x.shape[1] // self.chunk
        rows = x.view(self.batch, self.heads, self.chunks, group, self.chunk, x.shape[-1])
        return (rows * weight.unsqueeze(3)).view(x.shape)

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
    """x; for an exporter a copy, since the strides of a reshaped tensor of open sizes are an open question to it."""
    return x.clone(memory_format=torch.contiguous_format) if torch.compiler.is_exporting() else x


class Chunks(NamedTuple):
    """Queries, keys and values in chunks, with their weights."""

    Q: Tensor  # (M, group · C, f)
    K: Tensor  # (M, C, f)
    V: Tensor  # (M, C, e)
    Q_before: Tensor  # the queries as the state before the chunk meets them
    K_after: Tensor  # the keys as the state after the chunk takes them
    weights: ChunkWeights | None
    layout: ChunkLayout

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor, pairs: PairWeights, gap: Tensor | None, chunk: int) -> "Chunks":
        dtype = compute_dtype(q.dtype)
        layout = ChunkLayout.of(q, k, chunk)
        Q, K, V = layout.queries(q.to(dtype)), layout.keys(k.to(dtype)), layout.keys(v.to(dtype))
        weights = layout.weights(pairs, gap, dtype, q.device)
        if weights is None:
            return cls(Q, K, V, Q, K, None, layout)
        return cls(Q, K, V, layout.scale(Q, weights.before), layout.scale(K, weights.after), weights, layout)

    def scores(self) -> Tensor:
        return self.layout.mask_(torch.bmm(self.Q, self.K.mT), self.weights)
