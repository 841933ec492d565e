"""Queries, keys and values in chunks: their memory layout, and the weights of their pairs."""

from typing import NamedTuple

import torch
from torch import Tensor

from lrpe.attention.weights import ChunkWeights, PairWeights, chunk_weights
from lrpe.precision import compute_dtype


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
            # N - 1 of chunk_weights. It also turns -(-n // chunk) into a division that rounds towards 0.
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

    def tokens(self, x: Tensor) -> Tensor:
        """(batch or 1, n) integers -> (batch or 1, N, C); padding in front repeats the first token's value."""
        return x.index_select(1, self.token_indices(x).clamp(min=0)).unflatten(1, (self.chunks, self.chunk))

    def token_indices(self, x: Tensor) -> Tensor:
        """Return the index of the token in each of the N · C rows; it is negative for padding."""
        return torch.arange(self.chunks * self.chunk, device=x.device) - self.pad

    def weights(
        self, pairs: PairWeights, gap: Tensor | None, dtype: torch.dtype, device: torch.device
    ) -> ChunkWeights | None:
        """Return the pairs' weights, or None if all are 1; ``gap`` (batch,) separates the initial state and token 0."""
        if pairs.all_ones:
            return None
        if pairs.positions is None and pairs.sequences is None and gap is None:  # gap=None: no initial state
            p = torch.arange(self.chunk, device=device).view(1, 1, -1)  # consecutive positions: all chunks are alike
            return chunk_weights(p, torch.full((1, 1), -1, device=device), pairs, None, dtype)
        return chunk_weights(*self.locate(pairs, gap, device), dtype)

    def locate(self, pairs: PairWeights, gap: Tensor | None, device: torch.device):
        """Return the chunks' positions (batch, N, C), the initial state's (batch, 1), and the chunks' sequences."""
        p = pairs.token_positions(self.n, device)
        start = p[:, :1] - (1 if gap is None else gap[:, None])
        sequences = None if pairs.sequences is None else self.tokens(pairs.sequences)
        return self.tokens(p).expand(start.shape[0], -1, -1), start, pairs, sequences

    def scale(self, x: Tensor, weight: Tensor) -> Tensor:
        """Multiply x (M, rows, d) by a weight (batch or 1, heads or 1, N or 1, C, d or 1), alike in a group."""
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
    def of(cls, q: Tensor, k: Tensor, v: Tensor, pairs: PairWeights, gap: Tensor | None, chunk: int) -> "Chunks":
        dtype = compute_dtype(q.dtype)
        layout = ChunkLayout.of(q, k, chunk)
        Q, K, V = layout.queries(q.to(dtype)), layout.keys(k.to(dtype)), layout.keys(v.to(dtype))
        weights = layout.weights(pairs, gap, dtype, q.device)
        if weights is None:
            return cls(Q, K, V, Q, K, None, layout)
        return cls(Q, K, V, layout.scale(Q, weights.before), layout.scale(K, weights.after), weights, layout)

    def scores(self) -> Tensor:
        """Return A, the weighted scores within each chunk, (M, group · C, C)."""
        return self.layout.mask_(torch.bmm(self.Q, self.K.mT), self.weights)
