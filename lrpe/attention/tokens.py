"""The tokens of a batch: their positions, which are padding, and which packed sequence each belongs to."""

from typing import NamedTuple

import torch
from torch import Tensor

from lrpe.attention.inputs import (
    Given,
    begins,
    find_falls,
    join_row,
    number_sequences,
    read_mask,
    read_positions,
    read_sequences,
)
from lrpe.attention.state import AnyState
from lrpe.autograd import has_values
from lrpe.errors import check_tensor, require
from lrpe.parallel import Part, active_group, refuse
from lrpe.positions import padded


class Tokens(NamedTuple):
    """The n tokens of each row of a batch. Positions of None mean 0, 1, ...; the mask is True for real tokens."""

    positions: Tensor | None  # (batch or 1, n) int64, or (batch or 1, n, axes) on a grid
    mask: Tensor | None  # (batch, n) bool
    sequences: Tensor | None  # (batch or 1, n) int64: the index of each token's sequence, 0, 1, ... from the left
    bounds: Tensor | None = None  # (sequences + 1,) int64: the sequences' boundaries, if given as cu_seqlens
    gap: Tensor | None = None  # (batch,): steps from the last token of a preceding state to the first token; 1 if None
    next: Tensor | None = None  # (batch,): one past the position of each row's last real token
    consecutive: bool = False  # whether every token is one step after the one before, or after the state
    part: Part | None = None  # which part of a longer row these tokens are, inside lrpe.parallel.context
    whole: "Tokens | None" = None  # the tokens of that row; None if all are real, consecutive and of one sequence

    def distances(self) -> Tensor | None:
        """Return the steps from the token before, or from the state, to each token, (batch or 1, n); None if all are 1.

        Padding takes no step. Across the border of two packed sequences the number has no meaning.
        """
        if self.part is not None and self.whole is not None:
            of_row = self.whole.distances()
            return None if of_row is None else self.part.cut(of_row)
        clock = None if self.consecutive else self.clock()
        if clock is None:
            return None
        first = torch.ones_like(clock[:, :1]) if self.gap is None else self.gap[:, None]
        clock = clock.expand(first.shape[0], -1)
        before = clock[:, :1] - first
        if self.mask is not None:  # the step from a state belongs to the first real token, not to padding before it
            clock = torch.where(self.mask.long().cumsum(-1) > 0, clock, before)
        return clock - torch.cat([before, clock], 1)[:, :-1]

    def clock(self) -> Tensor | None:
        """Return the positions that a decay counts by, which never fall within a sequence.

        Padding has the position of the real token before it in its sequence, or the row's lowest real position.
        """
        if self.positions is None or self.mask is None:
            return self.positions
        far = torch.iinfo(torch.long).max
        first = self.positions.masked_fill(~self.mask, far).amin(-1, keepdim=True)
        first = first.masked_fill(first == far, 0)  # a row of padding only
        since = torch.where(self.mask, self.positions - first, 0)
        if self.sequences is None:
            return last_real(since, self.mask) + first
        lift = self.sequences * (since.amax(-1, keepdim=True) + 1)  # keeps a maximum from crossing sequences
        return (since + lift).cummax(-1).values - lift + first

    def begins(self) -> Tensor | None:
        """Return whether each token is the first of its packed sequence, (batch or 1, n); None if nothing is packed."""
        if self.part is not None and self.whole is not None:
            of_row = self.whole.begins()
            return None if of_row is None else self.part.cut(of_row)
        return None if self.sequences is None else begins(self.sequences)

    def until(self, stop: int) -> "Tokens":
        """Return the positions, mask and sequences of the tokens before ``stop``."""
        positions, mask, sequences = (None if x is None else x[:, :stop] for x in self[:3])
        return Tokens(positions, mask, sequences)

    def cut(self, part: Part) -> "Tokens":
        """Return a part of these tokens, which make up a row."""
        assert self.next is not None
        if self.positions is None:  # all are real, consecutive and of one sequence
            positions = torch.arange(part.start, part.stop, device=self.next.device)[None]
            after = torch.full_like(self.next, part.stop)
            return Tokens(positions, None, None, next=after, consecutive=True, part=part)
        positions, mask, sequences = (None if x is None else part.cut(x) for x in self[:3])
        after = _next_position(self.until(part.stop), len(self.next)) if part.stop else torch.zeros_like(self.next)
        return Tokens(positions, mask, sequences, next=after, part=part, whole=self)


def last_real(values: Tensor, mask: Tensor) -> Tensor:
    """Return the value at the last real token up to each token, 0 before the first; (batch, n) -> (batch, n).

    For values that never fall this is the running maximum (cummax), which ONNX lacks.
    """
    count = mask.long().cumsum(-1)
    slots = torch.zeros_like(torch.cat([count, count[:, :1]], 1))
    return slots.scatter(1, torch.where(mask, count, 0), values.expand(count.shape)).gather(1, count)


def positions_of(tokens: Tokens, x: Tensor) -> Tensor:
    """Return the positions of the tokens of x (..., n, d); (batch or 1, n)."""
    return torch.arange(x.shape[-2], device=x.device)[None] if tokens.positions is None else tokens.positions


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return x (batch, ..., n, d) with zeros at padding, where the mask (batch, n) is False.

    Multiplying by the mask would not do: 0 · NaN would spread through the sums and the gradients.
    """
    if mask is None:
        return x
    return torch.where(mask.view(mask.shape[0], *(1,) * (x.ndim - 3), mask.shape[1], 1), x, 0)


def zero_both_paddings(
    x: Tensor, context: Tensor, mask: Tensor | None, context_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Zero the padding of x and of its context; if they are one tensor, return one tensor twice."""
    if mask is None and context_mask is None:
        return x, context
    shown = zero_padding(x, mask)
    return shown, shown if context is x else zero_padding(context, context_mask)


def read_tokens(
    x: Tensor,
    given: Given = Given(),  # noqa: B008  # immutable
    axes: int = 1,
    *,
    state: AnyState | None = None,
    counts: bool = False,
    causal: bool = False,
) -> Tokens:
    """Check what is said of the n tokens of x (batch, ..., n, d), and fill in default positions.

    ``counts`` says whether a decay or token-dependent steps count the steps between these positions, ``causal`` whether
    tokens see no later ones. Inside ``lrpe.parallel.context`` the tokens are a part of a row that all processes
    describe together.
    """
    group = active_group()
    if group is None:
        return _read_row(x, given, axes, state, counts, causal)
    refuse_in_context(axes, state)
    part, row, of_row = join_row(group, x, given)
    return _read_row(row, of_row, axes, None, counts, causal).cut(part)


def refuse_in_context(axes: int = 1, state: object = None) -> None:
    """Refuse, inside ``lrpe.parallel.context``, what has no order of tokens or continues another order."""
    if axes != 1:
        refuse(f"Tokens on a grid of {axes} axes", "Use an encoding of one axis.")
    if state is not None:
        refuse("A sum that continues a state", "Pass state=None and use_cache=False, and the whole sequence as parts.")


def _read_row(x: Tensor, given: Given, axes: int, state: AnyState | None, counts: bool, causal: bool) -> Tokens:
    """Return the tokens of x, which are all those of their rows."""
    require(
        axes == 1 or not (counts or state is not None),
        lambda: (
            f"Decays and states count steps along a sequence; this encoding has a grid of {axes} axes. Pass decay=None "
            "and state=None."
        ),
    )
    tokens = _check(given, x, axes)
    if state is not None:
        require(
            tokens.sequences is None, "Packed sequences start anew and cannot continue a state. Pass one of the two."
        )
        _check_state_position(state, x)
    if x.shape[-2] == 0:
        return _no_tokens(tokens, state, x)
    _check_order(tokens, axes, state, counts, causal)
    if tokens.positions is None and tokens.mask is None and tokens.sequences is None:
        return _consecutive(state, x)
    return _fill_in(tokens, state, x, counts)


_UNDESCRIBED = Tokens(None, None, None)


def _check(given: Given, x: Tensor, axes: int) -> Tokens:
    """Return what is said of the tokens, checked, each part in its one shape."""
    if all(x is None for x in given):
        return _UNDESCRIBED
    sequences, bounds = given.sequences, None
    if given.cu_seqlens is not None:
        require(sequences is None, "cu_seqlens and sequences both separate packed sequences; pass one of the two.")
        sequences, bounds = number_sequences(given.cu_seqlens, x), given.cu_seqlens.long()
    return Tokens(
        None if given.positions is None else read_positions(given.positions, x, axes),
        None if given.mask is None else read_mask(given.mask, x),
        None if sequences is None else read_sequences(sequences, x),
        bounds,
    )


def read_sides(
    x: Tensor,
    context: Tensor | None,
    given: Given,
    of_context: Given,
    axes: int,
    *,
    state: AnyState | None = None,
    counts: bool = False,
    causal: bool = False,
) -> tuple[Tokens, Tokens]:
    """Return the tokens of the queries and of the keys, which are the same object unless there is a context."""
    if context is None:
        require(
            of_context.positions is None and of_context.mask is None,
            "context_positions and context_mask describe a context; none was given. Leave them out.",
        )
        tokens = read_tokens(x, given, axes, state=state, counts=counts, causal=causal)
        return tokens, tokens
    refuse("Cross-attention", "Call the layer outside of it: every process may hold the whole context.")
    require(
        not given.packed and state is None,
        "Packed sequences and states attend to themselves; pass them without a context.",
    )
    return read_tokens(x, given, axes), read_tokens(context, of_context, axes)


def _no_tokens(given: Tokens, state: AnyState | None, x: Tensor) -> Tokens:
    """Return 0 tokens: their (empty) positions, the boundaries of packed sequences, and the state's next position."""
    stays = _consecutive(state, x)
    return stays._replace(
        positions=given.positions if stays.positions is None else stays.positions, bounds=given.bounds
    )


def _consecutive(state: AnyState | None, x: Tensor) -> Tokens:
    """Return tokens with consecutive positions from the state's next position, or from 0."""
    batch, n = x.shape[0], x.shape[-2]
    if state is None:
        return Tokens(None, None, None, next=torch.full((batch,), n, dtype=torch.long, device=x.device))
    positions = state.position.unsqueeze(1)
    if n != 1:  # for one token, calls cost more than arithmetic
        positions = torch.arange(n, device=x.device) + positions
    return Tokens(positions, None, None, next=state.position + n, consecutive=True)


def _fill_in(given: Tokens, state: AnyState | None, x: Tensor, counts: bool) -> Tokens:
    """Fill in the positions if they were not given, the gap after the state, and the next position."""
    tokens = given
    if tokens.positions is None:
        counted = _count_real(given, x)
        tokens = given._replace(positions=counted if state is None else counted + state.position[:, None])
    gap = _gap_after(state, tokens) if state is not None and counts else None
    return tokens._replace(gap=gap, next=_next_position(tokens, x.shape[0], state))


def _count_real(tokens: Tokens, x: Tensor) -> Tensor:
    """Return positions that count the real tokens of each sequence from 0; (batch or 1, n).

    Padding is not counted: it has the position of the real token before it in its sequence, or 0.
    """
    mask = torch.ones(1, x.shape[-2], dtype=torch.bool, device=x.device) if tokens.mask is None else tokens.mask
    if tokens.sequences is None:
        return padded(mask)
    real = mask.long()
    count = real.cumsum(-1)
    before = torch.where(begins(tokens.sequences), count - real, 0).cummax(-1).values  # in all earlier sequences
    return (count - 1 - before).clamp(min=0)


def _check_state_position(state: AnyState, x: Tensor) -> None:
    batch, place = x.shape[0], state.position
    check_tensor("state.position", place)
    require(
        place.shape == (batch,) and place.device == x.device and place.dtype == torch.long,
        lambda: (
            f"state.position must have one int64 position for each of {batch} rows, on {x.device}; got {place.dtype} "
            f"of shape {tuple(place.shape)} on {place.device}."
        ),
    )


def _gap_after(state: AnyState, tokens: Tokens) -> Tensor:
    """Return the steps from the state's last token to the first token: 1 if consecutive, 0 if no token is real."""
    clock = tokens.clock()
    assert clock is not None  # _fill_in sets them first
    since = clock[:, 0] - state.position + 1
    return since if tokens.mask is None else torch.where(tokens.mask.any(-1), since, 0)


def _next_position(tokens: Tokens, batch: int, state: AnyState | None = None) -> Tensor:
    """Return one past the position of the last sequence's last real token, or else the state's or 0; (batch,)."""
    assert tokens.positions is not None
    place = tokens.positions if tokens.positions.ndim == 2 else tokens.positions.amax(-1)
    if tokens.mask is None and tokens.sequences is None:
        return place.amax(-1).expand(batch) + 1
    nowhere = torch.iinfo(torch.long).min
    if tokens.mask is not None:
        place = place.masked_fill(~tokens.mask, nowhere)
    if tokens.sequences is not None:
        place = place.masked_fill(tokens.sequences != tokens.sequences[:, -1:], nowhere)
    before = place.new_zeros(batch) if state is None else state.position
    last = place.amax(-1)
    return torch.where(last == nowhere, before, last + 1)


def _check_order(tokens: Tokens, axes: int, state: AnyState | None, counts: bool, causal: bool) -> None:
    """Check that given positions come after the state's, and do not fall where their order matters."""
    positions = tokens.positions
    if positions is None or axes > 1 or not has_values(positions):
        return
    real = torch.ones_like(positions, dtype=torch.bool) if tokens.mask is None else tokens.mask
    if state is not None:
        _check_beyond(state, positions, real)
    if counts or (causal and tokens.sequences is None):
        falls = find_falls(positions.expand(real.shape), real, tokens.sequences)
        require(
            not bool(falls.any()),
            lambda: (
                "positions must never fall within a sequence if attention is causal or has a decay; they do at (row, "
                f"token) {tuple(falls.nonzero()[0].tolist())}. To separate packed sequences, pass sequences or "
                "cu_seqlens."
            ),
        )


def _check_beyond(state: AnyState, positions: Tensor, real: Tensor) -> None:
    first = torch.where(real, positions, torch.iinfo(torch.long).max).amin(-1)
    require(
        bool((first >= state.position).all()),
        lambda: (
            f"positions must not be less than the state's next position, {state.position.tolist()}; got "
            f"{first.tolist()} as the least."
        ),
    )
