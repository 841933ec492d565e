"""The cache of a causal model: one state per layer, of constant size if the layer's attention is linear."""

from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from lrpe.errors import LrpeError, check_count, require
from lrpe.models.block import Block, State


class Read(NamedTuple):
    """What a block read in one call, and its state before: enough to read only the first of these tokens instead."""

    before: State | None
    x: Tensor  # (batch, n, width)
    positions: Tensor | None = None  # (n,) or (batch or 1, n), if they were given
    mask: Tensor | None = None  # (batch, n), if there is padding

    def first(self, count: int) -> "Read":
        positions = None if self.positions is None else self.positions[..., :count]
        mask = None if self.mask is None else self.mask[:, :count]
        if mask is not None and bool(mask.all()):
            mask = None  # as in a call with these tokens alone; softmax attention rounds differently with a mask
        return Read(self.before, self.x[:, :count], positions, mask)

    def select(self, rows: Tensor) -> "Read":
        """Return this read for these rows of the batch, in this order."""
        before = None if self.before is None else self.before.select(rows)
        shared = self.positions is None or self.positions.ndim == 1 or len(self.positions) == 1
        positions = self.positions if shared else self.positions[rows]  # type: ignore[index]  # not None here
        return Read(before, self.x[rows], positions, None if self.mask is None else self.mask[rows])


class StateLayer(CacheLayerMixin):
    """The state of one layer, and the number of tokens that it has seen, including padding.

    A sum does not tell its terms, so a state cannot remove tokens. With ``rollback`` it goes back to a state that it
    kept, from before the call that read them, and what that call read besides is read again from there: ``crop`` leaves
    the state that the layer would have, bit for bit, if it had read the remaining tokens alone.
    """

    is_compileable = False  # otherwise generate() would build an n × n mask
    is_sliding = False
    supports_early_init = False

    def __init__(self, rollback: int = 0):
        super().__init__()
        self.rollback = rollback
        self.reset()

    def reset(self) -> None:
        self.state: State | None = None
        self.seen = 0
        self.reads: list[Read] = []  # the latest, oldest first
        self.shortened: Read | None = None  # to be read again, from the state as it is now

    @property
    def is_croppable(self) -> bool:  # type: ignore[override]  # transformers has a class attribute
        return self.rollback > 0

    def keep(self, state: State | None, tokens: int, read: Read | None = None) -> None:
        """Store the state after these tokens, and what was read if it is to be taken back."""
        self.state, self.seen = state, self.seen + tokens
        if not self.rollback or read is None:
            self.reads = []
            return
        self.reads.append(read)
        while sum(later.x.shape[1] for later in self.reads[1:]) >= self.rollback:
            del self.reads[0]

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last -tokens_to_remove tokens; a positive number is the number of tokens to keep.

        Raises:
            LrpeError: the tokens are no longer kept, or never were.
        """
        count = -tokens_to_remove if tokens_to_remove <= 0 else max(self.seen - tokens_to_remove, 0)
        self.check_reach(count)
        if count and self.shortened is not None:
            self.reads.append(self.shortened)
        while count:
            read = self.reads.pop()
            size = read.x.shape[1]
            removed = min(count, size)
            self.state, self.seen, count = read.before, self.seen - removed, count - removed
            self.shortened = read.first(size - removed) if removed < size else None

    def read_again(self, block: Block) -> None:
        """Read what ``crop`` left of the call that it cut short."""
        read = self.shortened
        if read is None:
            return
        self.state = block.read(read.x, read.before, read.positions, read.mask)
        self.reads.append(read)
        self.shortened = None

    def check_reach(self, count: int) -> None:
        require(
            count == 0 or self.rollback > 0,
            "A state cannot remove tokens, so this cache cannot be cropped. For the models of lrpe.models pass "
            f"past_key_values=LrpeCache(layers, rollback={count}); otherwise read the text again.",
        )
        reads = self.reads if self.shortened is None else [*self.reads, self.shortened]
        reach = sum(read.x.shape[1] for read in reads)
        require(
            count <= reach,
            f"crop can remove at most {reach} tokens from this cache, which was made with rollback={self.rollback}; "
            f"got {count}. Make it with LrpeCache(layers, rollback={count}), or read the text again.",
        )

    def select(self, rows: Tensor) -> None:
        if self.state is not None:
            rows = rows.to(self.state.position.device)
            self.state = self.state.select(rows)
        self.reads = [read.select(rows) for read in self.reads]
        self.shortened = None if self.shortened is None else self.shortened.select(rows)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.select(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        self.select(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.seen:
            batch = len(self.state.position if self.shortened is None else self.shortened.x)  # type: ignore[union-attr]
            self.select(torch.arange(batch).repeat_interleave(repeats))

    def get_seq_length(self, *_: Any) -> int:
        return self.seen

    def get_max_length(self) -> int:
        return -1

    def get_max_cache_shape(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        new = query_length if isinstance(query_length, int) else len(query_length)
        return self.seen + new, 0

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        """Do nothing: the first prefill creates the state."""

    def update(self, *_: Any, **__: Any) -> NoReturn:
        raise LrpeError("A StateLayer stores a state, not keys and values; call keep(state, tokens) instead of update.")


class LrpeCache(Cache):
    """One state per layer of a causal model; pass it as ``past_key_values`` to continue a text.

    >>> cache = LrpeCache(layers=2)
    >>> cache.get_seq_length()
    0
    """

    def __init__(self, layers: int, room: int = 0, rollback: int = 0):
        """Create an empty cache.

        Args:
            layers: number of layers.
            room: number of tokens for which softmax layers reserve memory; with 0 their memory grows with each token.
            rollback: number of tokens that ``crop`` can remove at any time; all tokens of the latest call can be
                removed too. It keeps the state before each of the last calls, and what their tokens were.
        """
        check_count("rollback", rollback, least=0)
        super().__init__(layers=[StateLayer(rollback) for _ in range(layers)])
        self.room = room

    @property
    def rollback(self) -> int:
        return self.of_layers[0].rollback

    def allow_rollback(self, tokens: int) -> None:
        """Let ``crop`` remove at least this many of the tokens that are read from now on."""
        for layer in self.of_layers:
            layer.rollback = max(layer.rollback, tokens)

    @property
    def of_layers(self) -> list[StateLayer]:
        return self.layers  # type: ignore[return-value]

    @property
    def states(self) -> list[State | None]:
        return [layer.state for layer in self.of_layers]

    def get_seq_length(self, layer_idx: int = 0, *_: Any) -> int:
        return self.of_layers[layer_idx].seen

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last -tokens_to_remove tokens; a positive number is the number of tokens to keep.

        Raises:
            LrpeError: these tokens are beyond ``rollback`` and the latest call.
        """
        for layer in self.of_layers:
            layer.crop(tokens_to_remove)

    @property
    def nbytes(self) -> int:
        """Return the memory of all states, in bytes, with that of rolling back."""
        layers = [(layer, *layer.reads, layer.shortened) for layer in self.of_layers]
        parts = [part for of_layer in layers for part in of_layer if part is not None]
        tensors = [tensor for part in parts for tensor in _list_tensors(part)]
        # Reserved states share their memory, which counts once.
        return sum({tensor.untyped_storage().data_ptr(): tensor.nbytes for tensor in tensors}.values())


def _list_tensors(part: StateLayer | Read) -> list[Tensor]:
    state = part.state if isinstance(part, StateLayer) else part.before
    values = () if state is None else state if isinstance(state, tuple) else vars(state).values()
    given = () if isinstance(part, StateLayer) else part[1:]
    return [value for value in (*values, *given) if isinstance(value, Tensor)]
