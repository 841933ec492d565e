"""Check masks, positions and packed sequences, and bring each into one shape."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from lrpe.arguments import check_tensor, is_integral
from lrpe.errors import LrpeError, require
from lrpe.positions import batched, packed


class Given(NamedTuple):
    """The arguments of an attention layer that describe its tokens, before they are checked."""

    positions: Tensor | None = None
    mask: Tensor | None = None
    sequences: Tensor | None = None
    cu_seqlens: Tensor | None = None

    @property
    def packed(self) -> bool:
        return self.sequences is not None or self.cu_seqlens is not None


def read_mask(mask: Any, x: Tensor) -> Tensor:
    """Return a padding mask (batch, n) of booleans or integers as booleans."""
    batch, n = x.shape[0], x.shape[-2]
    check_tensor("mask", mask, x)
    if not is_integral(mask) or tuple(mask.shape) != (batch, n):
        raise LrpeError(
            f"mask must be a padding mask of shape (batch, n) = ({batch}, {n}), True (or 1) for real tokens; got "
            f"{mask.dtype} of shape {tuple(mask.shape)}. An n × n mask would need scores, which are never formed."
        )
    return mask != 0


def read_step_mask(mask: Any) -> Tensor | None:
    """Return a step's mask (batch,) as the mask of one token per row, (batch, 1)."""
    if mask is None:
        return None
    check_tensor("mask", mask)
    require(mask.ndim == 1, lambda: f"A step's mask must have one entry per row, (batch,); got {tuple(mask.shape)}.")
    return mask[:, None]


def read_positions(positions: Any, x: Tensor, axes: int) -> Tensor:
    """Return positions (n,) or (batch, n), plus an axis on a grid, as (1 or batch, n) or (1 or batch, n, axes)."""
    batch, n = x.shape[0], x.shape[-2]
    positions = batched(positions, axes)
    check_tensor("positions", positions, x)
    require(
        positions.shape[0] in (1, batch) and positions.shape[1] == n,
        lambda: f"positions must have shape ({n},) or ({batch}, {n}); got {tuple(positions.shape)}.",
    )
    return positions


def read_sequences(sequences: Any, x: Tensor) -> Tensor:
    """Renumber the sequences 0, 1, ... from the left; a number that recurs later begins another sequence."""
    batch, n = x.shape[0], x.shape[-2]
    check_tensor("sequences", sequences, x)
    sequences = sequences[None] if sequences.ndim == 1 else sequences
    require(
        is_integral(sequences) and sequences.ndim == 2 and sequences.shape[0] in (1, batch) and sequences.shape[1] == n,
        lambda: (
            f"sequences must be integers of shape ({n},) or ({batch}, {n}); got {sequences.dtype} of shape "
            f"{tuple(sequences.shape)}."
        ),
    )
    return begins(sequences).long().cumsum(-1) - 1


def number_sequences(cu_seqlens: Any, x: Tensor) -> Tensor:
    """Return the index of each token's sequence, (1, n), from the boundaries (sequences + 1,)."""
    batch, n = x.shape[0], x.shape[-2]
    require(batch == 1, lambda: f"cu_seqlens needs a batch of one row; got {batch} rows. Pass sequences instead.")
    check_tensor("cu_seqlens", cu_seqlens, x)
    require(
        cu_seqlens.device.type != "meta", "cu_seqlens must hold numbers, which a tensor on the meta device does not."
    )
    packed(cu_seqlens)  # called for its checks
    require(
        int(cu_seqlens[-1]) == n, lambda: f"cu_seqlens must end with the number of tokens, {n}; got {cu_seqlens[-1]}."
    )
    lengths = cu_seqlens.long().diff()
    return torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)[None]


def begins(sequences: Tensor) -> Tensor:
    """Return whether each token is the first of its sequence; (batch, n) -> (batch, n)."""
    first = torch.ones_like(sequences[:, :1], dtype=torch.bool)
    return torch.cat([first, sequences[:, 1:] != sequences[:, :-1]], 1)


def find_falls(positions: Tensor, real: Tensor, sequences: Tensor | None) -> Tensor:
    """Return whether a real token's position is less than that of an earlier one in its sequence; (batch, n)."""
    span = positions.amax() - positions.amin() + 1
    height = positions if sequences is None else positions + span * sequences  # above all earlier sequences
    lowest = torch.iinfo(torch.long).min
    return (height.masked_fill(~real, lowest).cummax(-1).values > height) & real
