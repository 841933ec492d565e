"""Pair weights w_ts = r^|p_t - p_s| within a sequence, 0 across sequences; for all pairs, and for chunks of them."""

from typing import NamedTuple

import torch
from torch import Tensor

from lrpe.precision import in_float64


class PairWeights(NamedTuple):
    """The decay, positions and sequence numbers that define w_ts.

    ``decay`` has one r per key head, 0 < r ≤ 1. ``positions`` are (batch or 1, n) and never decrease within a
    sequence; None means 0, 1, 2, .... ``sequences`` are (batch or 1, n); None means one sequence.
    """

    decay: Tensor | None = None
    positions: Tensor | None = None
    sequences: Tensor | None = None

    @property
    def all_ones(self) -> bool:
        """Return whether every weight is 1."""
        return self.decay is None and self.sequences is None

    def decay_over(self, distance: Tensor, dtype: torch.dtype) -> Tensor:
        """Return r^distance, at most 1, for distances (batch, ...) of 0 or more -> (batch, heads or 1, ...)."""
        if self.decay is None:
            return torch.ones_like(distance, dtype=dtype)[:, None]
        # float64: an error in log r is multiplied by the distance, which may be many thousands.
        log_r = in_float64(self.decay).log().view(1, -1, *(1,) * (distance.ndim - 1))
        return (log_r * in_float64(distance)[:, None]).exp().to(distance.device, dtype)

    def token_positions(self, n: int, device: torch.device) -> Tensor:
        """Return the positions of n tokens, (batch or 1, n)."""
        return torch.arange(n, device=device)[None] if self.positions is None else self.positions

    def reversed(self) -> "PairWeights":
        """Return the weights of the reversed tokens; positions are negated, so that they still never decrease."""
        positions = None if self.positions is None else -self.positions.flip(-1)
        return PairWeights(self.decay, positions, None if self.sequences is None else self.sequences.flip(-1))


class ChunkWeights(NamedTuple):
    """The weights of pairs in N chunks of C tokens. Every exponent is a difference of positions, 0 or more.

    e_c is the position of the last token of chunk c. A weight across two sequences is 0. If all chunks are alike, N is
    1 here.
    """

    inside: Tensor  # (batch, heads, N, C, C): r^(p_t - p_s) for s ≤ t within the chunk
    before: Tensor  # (batch, heads, N, C, 1): r^(p_t - e_{c-1}), from the state before the chunk to a query
    after: Tensor  # (batch, heads, N, C, 1): r^(e_c - p_s), from a key to the state after the chunk
    carry: Tensor  # (batch, heads, N, 1, 1): r^(e_c - e_{c-1}), from one state to the next


def chunk_weights(
    p: Tensor, start: Tensor, pairs: PairWeights, sequences: Tensor | None, dtype: torch.dtype
) -> ChunkWeights:
    """Return the weights of chunks at positions p (batch, N, C), with the initial state at ``start`` (batch, 1)."""
    end = p[..., -1]
    start = torch.cat([start.expand(end.shape[0], 1), end[:, :-1]], 1)  # e_{c-1}: (batch, N)
    # Differences are negative only for pairs that get weight 0; clamp keeps r^distance finite there.
    inside = pairs.decay_over((p[..., :, None] - p[..., None, :]).clamp(min=0), dtype).tril()
    before = pairs.decay_over((p - start[..., None]).clamp(min=0), dtype)
    after = pairs.decay_over((end[..., None] - p).clamp(min=0), dtype)
    carry = pairs.decay_over((end - start).clamp(min=0), dtype)
    if sequences is not None:  # (batch, N, C)
        last = sequences[..., -1]
        earlier = torch.cat([sequences[:, :1, 0], last[:, :-1]], 1)
        inside = inside * (sequences[..., :, None] == sequences[..., None, :])[:, None]
        before = before * (sequences == earlier[..., None])[:, None]
        after = after * (sequences == last[..., None])[:, None]
        carry = carry * (last == earlier)[:, None]
    return ChunkWeights(inside, before[..., None], after[..., None], carry[..., None, None])


def chunk_links(p: Tensor, start: Tensor, pairs: PairWeights, sequences: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return the weights, in the state before each chunk, of the initial state and each chunk's contribution.

    They are (batch, heads, N, 1 + N).
    """
    end = torch.cat([start.expand(p.shape[0], 1), p[..., -1]], 1)  # positions of the initial and each chunk's state
    links = pairs.decay_over((end[:, :-1, None] - end[:, None, :]).clamp(min=0), dtype).tril()
    if sequences is not None:
        last = torch.cat([sequences[:, :1, 0], sequences[..., -1]], 1)
        links = links * (last[:, :-1, None] == last[:, None, :])[:, None]
    return links
