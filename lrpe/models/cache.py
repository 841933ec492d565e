"""The cache of a causal model: one state per layer, of constant size if the layer's attention is linear."""

from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from lrpe.errors import LrpeError
from lrpe.models.block import State


class StateLayer(CacheLayerMixin):
    """The state of one layer, and the number of tokens that it has seen, including padding."""

    is_compileable = False  # otherwise generate() would build an n × n mask
    is_croppable = False
    is_sliding = False
    supports_early_init = False

    def __init__(self):
        super().__init__()
        self.state: State | None = None
        self.seen = 0

    def keep(self, state: State | None, tokens: int) -> None:
        self.state, self.seen = state, self.seen + tokens

    def select(self, rows: Tensor) -> None:
        if self.state is not None:
            self.state = self.state.select(rows.to(self.state.position.device))

    def reset(self) -> None:
        self.state, self.seen = None, 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.select(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        self.select(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.state is not None:
            rows = torch.arange(len(self.state.position), device=self.state.position.device)
            self.select(rows.repeat_interleave(repeats))

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

    def crop(self, *_: Any) -> NoReturn:
        raise LrpeError(
            "A state cannot remove tokens, so this cache cannot be cropped. Use greedy search, sampling or beam "
            "search, or use_cache=False."
        )


class LrpeCache(Cache):
    """One state per layer of a causal model; pass it as ``past_key_values`` to continue a text.

    >>> cache = LrpeCache(layers=2)
    >>> cache.get_seq_length()
    0
    """

    def __init__(self, layers: int, room: int = 0):
        """Create an empty cache.

        Args:
            layers: number of layers.
            room: number of tokens for which softmax layers reserve memory; with 0 their memory grows with each token.
        """
        super().__init__(layers=[StateLayer() for _ in range(layers)])
        self.room = room

    @property
    def of_layers(self) -> list[StateLayer]:
        return self.layers  # type: ignore[return-value]

    @property
    def states(self) -> list[State | None]:
        return [layer.state for layer in self.of_layers]

    def get_seq_length(self, layer_idx: int = 0, *_: Any) -> int:
        return self.of_layers[layer_idx].seen

    @property
    def nbytes(self) -> int:
        """Return the memory of all states, in bytes."""
        tensors = [tensor for state in self.states if state is not None for tensor in _list_tensors(state)]
        return sum(tensor.nbytes for tensor in tensors)


def _list_tensors(state: State) -> list[Tensor]:
    values = state if isinstance(state, tuple) else vars(state).values()
    return [value for value in values if isinstance(value, Tensor)]
