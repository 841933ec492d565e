"""What a caller says of tokens, checked and brought into one shape: masks, positions, packed sequences."""

from typing import Any

import torch
from torch import Tensor

from lrpe.arguments import check_tensor, is_integral
from lrpe.errors import LrpeError, require
from lrpe.positions import batched, packed


def read_mask(mask: Any, x: Tensor) -> Tensor:
    """A padding mask (batch, n) of booleans or integers, as booleans."""
    batch, n = x.shape[0], x.shape[-2]
    check_tensor("mask", mask, x)
    if not is_integral(mask) or tuple(mask.shape) != (batch, n):
        raise LrpeError(
            f"A key padding mask has shape (batch, n) = ({batch}, {n}) and is True (or 1) for real tokens; "
            f"got {mask.dtype} of shape {tuple(mask.shape)}. An n × n mask would need the scores that are never formed."
        )
    return mask != 0


def read_step_mask(mask: Any) -> Tensor | None:
    """A mask (batch,) of a step as one of one token, (batch, 1)."""
    if mask is None:
        return None
    check_tensor("mask", mask)
    require(mask.ndim == 1, lambda: f"A step's mask has one entry per row, (batch,); got {tuple(mask.shape)}.")
    return mask[:, None]


def read_positions(positions: Any, x: Tensor, axes: int) -> Tensor:
    """Positions (n,) or (batch, n), with a last axis on a grid, as (1 or batch, n) or (1 or batch, n, axes)."""
    batch, n = x.shape[0], x.shape[-2]
    positions = batched(positions, axes)
    check_tensor("positions", positions, x)
    require(
        positions.shape[0] in (1, batch) and positions.shape[1] == n,
        lambda: f"Positions have shape ({n},) or ({batch}, {n}); got {tuple(positions.shape)}.",
    )
    return positions


def read_sequences(sequences: Any, x: Tensor) -> Tensor:
    """Number the sequences anew, in the order in which they come: a number that comes back is another sequence."""
    batch, n = x.shape[0], x.shape[-2]
    check_tensor("sequences", sequences, x)
    sequences = sequences[None] if sequences.ndim == 1 else sequences
    require(
        is_integral(sequences) and sequences.ndim == 2 and sequences.shape[0] in (1, batch) and sequences.shape[1] == n,
        lambda: (
            f"Sequence numbers are integers of shape ({n},) or ({batch}, {n}); got {sequences.dtype} of shape "
            f"{tuple(sequences.shape)}."
        ),
    )
    return begins(sequences).long().cumsum(-1) - 1


def number_sequences(cu_seqlens: Any, x: Tensor) -> Tensor:
    """Boundaries -> the number of its sequence for each token, (1, n)."""
    batch, n = x.shape[0], x.shape[-2]
    require(batch == 1, lambda: f"cu_seqlens cut one row into sequences, so the batch is 1; got {batch} rows.")
    check_tensor("cu_seqlens", cu_seqlens, x)
    require(
        cu_seqlens.device.type != "meta", "cu_seqlens must have numbers in it, which the meta device does not hold."
    )
    packed(cu_seqlens)  # checks them
    require(int(cu_seqlens[-1]) == n, lambda: f"cu_seqlens end with the number of tokens, {n}; got {cu_seqlens[-1]}.")
    lengths = cu_seqlens.long().diff()
    return torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)[None]


def begins(sequences: Tensor) -> Tensor:
    """Whether a token is the first of its sequence; (batch, n) -> (batch, n)."""
    first = torch.ones_like(sequences[:, :1], dtype=torch.bool)
    return torch.cat([first, sequences[:, 1:] != sequences[:, :-1]], 1)


def check_cross_attention(causal: bool, decay: Tensor | None) -> None:
    """Check that nothing asks for an order between queries and a context."""
    require(
        not causal,
        "Cross-attention puts no order between queries and keys: its sum is bidirectional. Pass "
        'summation="bidirectional".',
    )
    require(
        decay is None, "A decay counts steps between tokens of one sequence; cross-attention has none. Pass decay=None."
    )
