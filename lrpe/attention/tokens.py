"""Which tokens there are: their positions, which of them are padding, and which packed sequence each belongs to."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from lrpe.errors import LrpeError, require
from lrpe.positions import batched, packed, padded


class Tokens(NamedTuple):
    """n tokens of each of ``batch`` rows. Positions of None are 0, 1, ...; a mask is True for real tokens."""

    positions: Tensor | None  # (batch or 1, n) int64, or (batch or 1, n, axes) on a grid
    mask: Tensor | None  # (batch, n) bool
    sequences: Tensor | None  # (batch or 1, n) int64: 0, 1, ... in the order in which they come
    bounds: tuple[int, ...] | None = None  # where packed sequences begin and end, if cu_seqlens told
    gap: Tensor | None = None  # (batch,): how far the state that they go on from stands before them; 1 if None
    next: Tensor | None = None  # (batch,): one past the position of each row's last real token

    def clock(self) -> Tensor | None:
        """Positions that never fall within a sequence, for the decay: padding stands where the token before it does.

        Padding before all real tokens of a sequence stands at the row's first position.
        """
        if self.positions is None or self.mask is None:
            return self.positions
        far = torch.iinfo(torch.long).max
        first = self.positions.masked_fill(~self.mask, far).amin(-1, keepdim=True)
        first = first.masked_fill(first == far, 0)
        since = torch.where(self.mask, self.positions - first, 0)
        if self.sequences is None:
            return last_real(since, self.mask) + first
        lift = self.sequences * (since.amax(-1, keepdim=True) + 1)  # every sequence stands above the one before it
        return (since + lift).cummax(-1).values - lift + first


def last_real(values: Tensor, mask: Tensor) -> Tensor:
    """The value at the last real token up to each token, 0 before all of them; (batch, n) -> (batch, n).

    Values that never fall have it as their running maximum, for which ONNX has no word.
    """
    count = mask.long().cumsum(-1)
    slots = torch.zeros_like(torch.cat([count, count[:, :1]], 1))
    return slots.scatter(1, torch.where(mask, count, 0), values.expand(count.shape)).gather(1, count)


def place(tokens: Tokens, x: Tensor) -> Tensor:
    """The positions of the tokens of x (..., n, d), (batch or 1, n)."""
    return torch.arange(x.shape[-2], device=x.device)[None] if tokens.positions is None else tokens.positions


class Standing(Protocol):
    """A state as far as its tokens go: it knows the next position of each row, (batch,)."""

    @property
    def position(self) -> Tensor: ...


def read_tokens(
    x: Tensor,
    axes: int = 1,
    positions: Tensor | None = None,
    mask: Tensor | None = None,
    sequences: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state: Standing | None = None,
    decays: bool = False,
) -> Tokens:
    """Check what a caller says of the n tokens of x (batch, ..., n, d), and fill in the positions that follow.

    ``decays`` says whether a decay counts steps by these positions, which then never fall.
    """
    batch, n = x.shape[0], x.shape[-2]
    require(
        axes == 1 or (state is None and not decays),
        f"A decay and a state count steps along a sequence; this encoding has a grid of {axes} axes.",
    )
    mask = None if mask is None else read_mask(mask, x)
    if cu_seqlens is not None:
        require(
            sequences is None, "Packed sequences are told by cu_seqlens or by sequence numbers; pass one of the two."
        )
        require(batch == 1, lambda: f"cu_seqlens cut one row into sequences, so the batch is 1; got {batch} rows.")
        sequences = number_sequences(cu_seqlens, x)
    if sequences is not None:
        sequences = read_sequences(sequences, x)
        require(state is None, "A state goes on with one sequence; packed sequences start anew. Pass one of the two.")
        positions = restart(sequences) if positions is None else positions
    if state is not None:
        check_standing(state, x)
    if positions is not None:
        positions = read_positions(positions, x, axes)
        if not torch.compiler.is_compiling():
            check_order(Tokens(positions, mask, sequences), state, decays)
    elif mask is None:
        return following(state, x)
    else:
        positions = padded(mask) if state is None else padded(mask) + state.position[:, None]
    tokens = Tokens(positions, mask, sequences, None if cu_seqlens is None else tuple(cu_seqlens.tolist()))
    gap = None if state is None or n == 0 or not decays else gap_after(state, tokens)
    return tokens._replace(gap=gap, next=next_position(tokens, x, state))


def following(state: Standing | None, x: Tensor) -> Tokens:
    """Tokens one after another, from where the state stands, or from 0."""
    batch, n = x.shape[0], x.shape[-2]
    if state is None:
        return Tokens(None, None, None, next=torch.full((batch,), n, dtype=torch.long, device=x.device))
    positions = torch.arange(n, device=x.device) + state.position[:, None]
    return Tokens(positions, None, None, next=state.position + n)


def check_standing(state: Standing, x: Tensor) -> None:
    batch, place = x.shape[0], state.position
    require(
        place.shape == (batch,) and place.device == x.device,
        lambda: (
            f"The state has one position for each of {batch} rows on {x.device}; got shape {tuple(place.shape)} on "
            f"{place.device}."
        ),
    )


def gap_after(state: Standing, tokens: Tokens) -> Tensor:
    """How far the state stands before the first token: 1 if they follow one another; 0 if that token is padding."""
    positions = tokens.clock()
    assert positions is not None  # read_tokens gives positions whenever there is a state
    since = positions[:, 0] - state.position + 1
    return since if tokens.mask is None else since.clamp(min=0)


def next_position(tokens: Tokens, x: Tensor, state: Standing | None) -> Tensor:
    """One past the position of the last sequence's last real token, (batch,); where there is none, where it was."""
    batch, n = x.shape[0], x.shape[-2]  # not len(x), which an exporter takes for a constant
    assert tokens.positions is not None
    before = torch.zeros(batch, dtype=torch.long, device=x.device) if state is None else state.position
    if n == 0:
        return before
    place = tokens.positions if tokens.positions.ndim == 2 else tokens.positions.amax(-1)
    if tokens.mask is None and tokens.sequences is None:
        return place.amax(-1).expand(batch) + 1
    nowhere = torch.iinfo(torch.long).min
    if tokens.mask is not None:
        place = place.masked_fill(~tokens.mask, nowhere)
    if tokens.sequences is not None:
        place = place.masked_fill(tokens.sequences != tokens.sequences[:, -1:], nowhere)
    last = place.amax(-1)
    return torch.where(last == nowhere, before, last + 1)


def read_mask(mask: Tensor, x: Tensor) -> Tensor:
    batch, n = x.shape[0], x.shape[-2]
    same_device("A mask lives", mask, x)
    if mask.is_floating_point() or tuple(mask.shape) != (batch, n):
        raise LrpeError(
            f"A key padding mask has shape (batch, n) = ({batch}, {n}) and is True (or 1) for real tokens; "
            f"got {mask.dtype} of shape {tuple(mask.shape)}. An n × n mask would need the scores that are never formed."
        )
    return mask != 0


def read_positions(positions: Tensor, x: Tensor, axes: int) -> Tensor:
    batch, n = x.shape[0], x.shape[-2]
    same_device("Positions live", positions, x)
    positions = batched(positions, axes)
    require(
        positions.shape[0] in (1, batch) and positions.shape[1] == n,
        lambda: f"Positions have shape ({n},) or ({batch}, {n}); got {tuple(positions.shape)}.",
    )
    return positions


def check_order(tokens: Tokens, state: Standing | None, decays: bool) -> None:
    """Positions lie beyond the state's; and they never fall within a sequence if a decay reads them as a clock."""
    positions = tokens.positions
    assert positions is not None
    real = torch.ones_like(positions, dtype=torch.bool) if tokens.mask is None else tokens.mask
    if state is not None and positions.numel() > 0:
        first = torch.where(real, positions, torch.iinfo(torch.long).max).amin(-1)
        require(
            bool((first >= state.position).all()),
            lambda: (
                f"Positions go on from the state's, which stands before {state.position.tolist()}; the first given are "
                f"{first.tolist()}."
            ),
        )
    if decays and positions.shape[1] > 1:
        falls = falls_of(positions.expand(real.shape), real, tokens.sequences)
        require(
            not bool(falls.any()),
            lambda: (
                "A decay counts steps from key to query, so positions never fall within a sequence; they do at (row, "
                f"token) {tuple(falls.nonzero()[0].tolist())}. Put the tokens in the order of their positions."
            ),
        )


def falls_of(positions: Tensor, real: Tensor, sequences: Tensor | None) -> Tensor:
    """Whether a real token stands before one that came earlier in its sequence; (batch, n)."""
    span = positions.amax() - positions.amin() + 1
    height = positions if sequences is None else positions + span * sequences  # each sequence above the one before
    lowest = torch.iinfo(torch.long).min
    return (height.masked_fill(~real, lowest).cummax(-1).values > height) & real


def same_device(what: str, given: Tensor, x: Tensor) -> None:
    require(given.device == x.device, f"{what} where x does; got {given.device} and {x.device}.")


def read_sequences(sequences: Tensor, x: Tensor) -> Tensor:
    """Number the sequences anew, in the order in which they come: a number that comes back is another sequence."""
    batch, n = x.shape[0], x.shape[-2]
    same_device("Sequence numbers live", sequences, x)
    sequences = sequences[None] if sequences.ndim == 1 else sequences
    require(
        not sequences.is_floating_point() and sequences.shape[0] in (1, batch) and sequences.shape[1:] == (n,),
        lambda: (
            f"Sequence numbers are integers of shape ({n},) or ({batch}, {n}); got {sequences.dtype} of shape "
            f"{tuple(sequences.shape)}."
        ),
    )
    return begins(sequences).long().cumsum(-1) - 1


def number_sequences(cu_seqlens: Tensor, x: Tensor) -> Tensor:
    """Boundaries -> the number of its sequence for each token, (1, n)."""
    n = x.shape[-2]
    same_device("cu_seqlens live", cu_seqlens, x)
    packed(cu_seqlens)  # checks them
    require(int(cu_seqlens[-1]) == n, f"cu_seqlens end with the number of tokens, {n}; got {int(cu_seqlens[-1])}.")
    lengths = cu_seqlens.long().diff()
    return torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)[None]


def restart(sequences: Tensor) -> Tensor:
    """Positions that start at 0 wherever the sequence number changes; (batch, n) -> (batch, n)."""
    place = torch.arange(sequences.shape[-1], device=sequences.device).expand(sequences.shape)
    return place - torch.where(begins(sequences), place, 0).cummax(-1).values


def begins(sequences: Tensor) -> Tensor:
    """Whether a token is the first of its sequence; (batch, n) -> (batch, n)."""
    first = torch.ones_like(sequences[:, :1], dtype=torch.bool)
    return torch.cat([first, sequences[:, 1:] != sequences[:, :-1]], 1)
