"""The states of causal attention: of fixed size if it is linear, all keys and values if it is softmax."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lrpe.errors import LrpeError, check_real, check_tensor, require


class DecodingState(NamedTuple):
    """S = Σ k_s v_sᵀ and z = Σ of the normaliser's keys, both decayed up to the last token, and the next position.

    Before the first token it is zeros at position 0. Its size does not depend on the number of tokens.
    """

    S: Tensor  # (batch, key heads, feature_dim, value_dim), float32 or float64
    z: Tensor  # (batch, key heads, delta_dim); delta_dim is 0 for a normaliser without Δ
    position: Tensor  # (batch,) int64: one past the last token's position
    phase: Tensor | None = None  # (batch, key heads, 1 or angles) float64: Σ of the steps, if they depend on the token
    window: Tensor | None = None  # (batch, kernel - 1, channels): the last inputs of the convolution, if there is one

    def select(self, rows: Tensor) -> "DecodingState":
        """Return the state of these rows of the batch, in this order: for beam search and shrinking batches."""
        return self.each(lambda tensor: tensor.index_select(0, rows))

    def detach(self) -> "DecodingState":
        return self.each(Tensor.detach)

    def with_window(self, window: Tensor | None) -> "DecodingState":
        return self._replace(window=window)

    def each(self, change: Callable[[Tensor], Tensor]) -> "DecodingState":
        return DecodingState(*(None if tensor is None else change(tensor) for tensor in self))  # type: ignore[arg-type]


def check_decoding_state(state: Any) -> None:
    if not isinstance(state, DecodingState):
        raise LrpeError(
            f"state must be a DecodingState, made by prefill(x) or initial_state(batch); got {type(state).__name__}."
        )
    check_real("state.S", state.S)
    check_real("state.z", state.z)
    check_tensor("state.position", state.position)


class KeyValueState(NamedTuple):
    """The encoded keys and the values of all tokens so far. It grows with each token, padding included."""

    keys: Tensor  # (batch, key heads, m, feature_dim)
    values: Tensor  # (batch, key heads, m, value_dim)
    positions: Tensor  # (batch, m) int64
    mask: Tensor | None  # (batch, m) bool: True for real tokens; None if all are real
    log_decay: Tensor | None = None  # (batch, key heads, m) float64: Σ of log r up to each token, if r depends on it
    phase: Tensor | None = None  # (batch, key heads, 1 or angles) float64: Σ of the steps, if they depend on the token
    window: Tensor | None = None  # (batch, kernel - 1, channels): the last inputs of the convolution, if there is one

    @property
    def position(self) -> Tensor:
        """One past the position of the last real token, (batch,); 0 if there is none."""
        nowhere = torch.iinfo(torch.long).min
        real = self.positions if self.mask is None else self.positions.masked_fill(~self.mask, nowhere)
        last = F.pad(real, (1, 0), value=nowhere).amax(-1)
        return torch.where(last == nowhere, 0, last + 1)

    def extend(self, new: "KeyValueState") -> "KeyValueState":
        """Return the state after further tokens; this one is unchanged."""
        mask = None
        if self.mask is not None or new.mask is not None:
            mask = torch.cat([_real_tokens(self), _real_tokens(new)], 1)
        keys, values = torch.cat([self.keys, new.keys], 2), torch.cat([self.values, new.values], 2)
        phase = self.phase if new.keys.shape[2] == 0 else new.phase
        decay = (
            None if self.log_decay is None or new.log_decay is None else torch.cat([self.log_decay, new.log_decay], 2)
        )
        return KeyValueState(keys, values, torch.cat([self.positions, new.positions], 1), mask, decay, phase)

    def select(self, rows: Tensor) -> "KeyValueState":
        """Return the state of these rows of the batch, in this order: for beam search and shrinking batches."""
        return self.each(lambda tensor: tensor.index_select(0, rows))

    def detach(self) -> "KeyValueState":
        return self.each(Tensor.detach)

    def with_window(self, window: Tensor | None) -> "KeyValueState":
        return self._replace(window=window)

    def each(self, change: Callable[[Tensor], Tensor]) -> "KeyValueState":
        return KeyValueState(*(None if tensor is None else change(tensor) for tensor in self))  # type: ignore[arg-type]


class ReservedState:
    """A KeyValueState in memory reserved for ``room`` tokens, which grows when it is full.

    ``extend`` returns a state that writes into the same memory, after the tokens of this one. This one stays as it was,
    so that a cache can go back to it, but only the newest continuation of a state is valid.
    """

    def __init__(self, state: KeyValueState, room: int):
        length = state.keys.shape[2]
        require(room >= length, f"room must hold the state's tokens; got room={room} for {length} tokens.")
        self.room, self.length, self.next, self.phase = room, length, state.position, state.phase
        self.window = state.window
        self.all_keys = F.pad(state.keys, (0, 0, 0, room - length))
        self.all_values = F.pad(state.values, (0, 0, 0, room - length))
        self.all_positions = F.pad(state.positions, (0, room - length))
        self.all_masks = None if state.mask is None else F.pad(state.mask, (0, room - length))
        self.all_decays = None if state.log_decay is None else F.pad(state.log_decay, (0, room - length))

    @property
    def keys(self) -> Tensor:
        return self.all_keys[:, :, : self.length]

    @property
    def values(self) -> Tensor:
        return self.all_values[:, :, : self.length]

    @property
    def positions(self) -> Tensor:
        return self.all_positions[:, : self.length]

    @property
    def mask(self) -> Tensor | None:
        return None if self.all_masks is None else self.all_masks[:, : self.length]

    @property
    def log_decay(self) -> Tensor | None:
        return None if self.all_decays is None else self.all_decays[:, :, : self.length]

    @property
    def position(self) -> Tensor:
        return self.next

    def extend(self, new: KeyValueState) -> "ReservedState":
        """Write further tokens behind those of this state, and return the state after them."""
        if new.keys.shape[2] == 0:
            return self
        place = slice(self.length, self.length + new.keys.shape[2])
        grows = place.stop > self.room
        after = ReservedState(self.copy(), 2 * place.stop) if grows else copy.copy(self)  # doubled: copies stay rare
        if new.mask is not None and after.all_masks is None:
            after.all_masks = F.pad(_real_tokens(self), (0, after.room - self.length))
        after.all_keys[:, :, place], after.all_values[:, :, place] = new.keys, new.values
        after.all_positions[:, place] = new.positions
        if after.all_masks is not None:
            after.all_masks[:, place] = _real_tokens(new)
        if after.all_decays is not None and new.log_decay is not None:
            after.all_decays[:, :, place] = new.log_decay
        after.length, after.phase = place.stop, new.phase
        after.next = new.position if new.mask is None else torch.where(new.mask.any(-1), new.position, self.next)
        return after

    def copy(self) -> KeyValueState:
        """Return the state of the tokens so far."""
        return KeyValueState(self.keys, self.values, self.positions, self.mask, self.log_decay, self.phase, self.window)

    def with_window(self, window: Tensor | None) -> "ReservedState":
        """Return this state with another window; both share their memory."""
        after = copy.copy(self)
        after.window = window
        return after

    def select(self, rows: Tensor) -> "ReservedState":
        """Return the state of these rows of the batch, in this order, with the same room."""
        return ReservedState(self.copy().select(rows), self.room)


KeyValues = KeyValueState | ReservedState
AnyState = DecodingState | KeyValues


def check_key_values(state: KeyValues, x: Tensor) -> None:
    """Check the devices and dtypes of a state for x, and that its positions and mask match; not the other sizes."""
    check_real("state.keys", state.keys, x)
    check_real("state.values", state.values, x)
    check_tensor("state.positions", state.positions, x)
    shape, dtype = tuple(state.positions.shape), state.positions.dtype
    integers = len(shape) == 2 and dtype == torch.long
    require(integers, lambda: f"state.positions must be int64 (batch, tokens); got {dtype} of shape {shape}.")
    if state.mask is not None:
        check_tensor("state.mask", state.mask, x)
        fits = tuple(state.mask.shape) == shape and state.mask.dtype == torch.bool
        require(fits, lambda: f"state.mask must be bool of shape {shape}; got {state.mask}.")


def check_state_decay(log_decay: Any, shape: tuple[int, ...] | None) -> None:
    """Check the summed log-decay of a KeyValueState, which has this shape if the decay depends on the token."""
    require(
        (log_decay is None) == (shape is None),
        "state must have a log_decay if, and only if, the decay depends on the tokens. Make it with the same layer.",
    )
    if shape is None:
        return
    check_real("state.log_decay", log_decay)
    found = tuple(log_decay.shape)
    require(found == shape, lambda: f"state.log_decay must have shape (batch, key heads, m) = {shape}; got {found}.")


def _real_tokens(state: KeyValues) -> Tensor:
    """Return the mask of a state, all True if it is None; (batch, m)."""
    return torch.ones_like(state.positions, dtype=torch.bool) if state.mask is None else state.mask
