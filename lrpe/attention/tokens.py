"""Which tokens there are: their positions, which of them are padding, and which packed sequence each belongs to."""

from typing import NamedTuple

import torch
from torch import Tensor

from lrpe.attention.state import DecodingState
from lrpe.errors import LrpeError, require
from lrpe.positions import batched, packed, padded


class Tokens(NamedTuple):
    """n tokens of each of ``batch`` rows. Positions of None are 0, 1, ...; a mask is True for real tokens."""

    positions: Tensor | None  # (batch or 1, n) int64, or (batch or 1, n, axes) on a grid
    mask: Tensor | None  # (batch, n) bool
    sequences: Tensor | None  # (batch or 1, n) int64
    bounds: tuple[int, ...] | None = None  # where packed sequences begin and end, if cu_seqlens told

    def clock(self) -> Tensor | None:
        """Positions that never fall, for the decay: padding stands where the real token before it does."""
        if self.positions is None or self.mask is None:
            return self.positions
        far = torch.iinfo(torch.long).max
        first = self.positions.masked_fill(~self.mask, far).amin(-1, keepdim=True)
        return torch.where(self.mask, self.positions, first.masked_fill(first == far, 0)).cummax(-1).values


def read_tokens(
    x: Tensor,
    axes: int = 1,
    positions: Tensor | None = None,
    mask: Tensor | None = None,
    sequences: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state: DecodingState | None = None,
) -> Tokens:
    """Check what a caller says of the n tokens of x (batch, ..., n, d), and fill in the positions that follow."""
    batch, n = x.shape[0], x.shape[-2]
    mask = None if mask is None else read_mask(mask, batch, n)
    if cu_seqlens is not None:
        require(
            sequences is None, "Packed sequences are told by cu_seqlens or by sequence numbers; pass one of the two."
        )
        require(batch == 1, lambda: f"cu_seqlens cut one row into sequences, so the batch is 1; got {batch} rows.")
        sequences = number_sequences(cu_seqlens, n)
    if sequences is not None:
        sequences = read_sequences(sequences, batch, n)
        require(state is None, "A state goes on with one sequence; packed sequences start anew. Pass one of the two.")
        positions = restart(sequences) if positions is None else positions
    if positions is not None:
        positions = read_positions(positions, x, axes, state)
    elif mask is not None or state is not None:
        counted = torch.arange(n, device=x.device)[None] if mask is None else padded(mask)
        positions = counted if state is None else counted + state.position[:, None]
    return Tokens(positions, mask, sequences, None if cu_seqlens is None else tuple(cu_seqlens.tolist()))


def read_mask(mask: Tensor, batch: int, n: int) -> Tensor:
    if mask.is_floating_point() or tuple(mask.shape) != (batch, n):
        raise LrpeError(
            f"A key padding mask has shape (batch, n) = ({batch}, {n}) and is True (or 1) for real tokens; "
            f"got {mask.dtype} of shape {tuple(mask.shape)}. An n × n mask would need the scores that are never formed."
        )
    return mask != 0


def read_positions(positions: Tensor, x: Tensor, axes: int, state: DecodingState | None) -> Tensor:
    batch, n = x.shape[0], x.shape[-2]
    require(positions.device == x.device, f"Positions live where x does; got {positions.device} and {x.device}.")
    positions = batched(positions, axes)
    require(
        positions.shape[0] in (1, batch) and positions.shape[1] == n,
        lambda: f"Positions have shape ({n},) or ({batch}, {n}); got {tuple(positions.shape)}.",
    )
    if state is not None and not torch.compiler.is_compiling():
        require(
            bool((positions[:, 0] >= state.position).all()),
            lambda: (
                f"Positions go on from the state's, which stands before {state.position.tolist()}; the first given are "
                f"{positions[:, 0].tolist()}."
            ),
        )
    return positions


def read_sequences(sequences: Tensor, batch: int, n: int) -> Tensor:
    sequences = sequences[None] if sequences.ndim == 1 else sequences
    require(
        not sequences.is_floating_point() and sequences.shape[0] in (1, batch) and sequences.shape[1:] == (n,),
        lambda: (
            f"Sequence numbers are integers of shape ({n},) or ({batch}, {n}); got {sequences.dtype} of shape "
            f"{tuple(sequences.shape)}."
        ),
    )
    return sequences.long()


def number_sequences(cu_seqlens: Tensor, n: int) -> Tensor:
    """Boundaries -> the number of its sequence for each token, (1, n)."""
    packed(cu_seqlens)  # checks them
    require(int(cu_seqlens[-1]) == n, f"cu_seqlens end with the number of tokens, {n}; got {int(cu_seqlens[-1])}.")
    lengths = cu_seqlens.long().diff()
    return torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)[None]


def restart(sequences: Tensor) -> Tensor:
    """Positions that start at 0 wherever the sequence number changes; (batch, n) -> (batch, n)."""
    place = torch.arange(sequences.shape[-1], device=sequences.device).expand(sequences.shape)
    begins = torch.ones_like(sequences, dtype=torch.bool)
    begins[:, 1:] = sequences[:, 1:] != sequences[:, :-1]
    return place - torch.where(begins, place, 0).cummax(-1).values
