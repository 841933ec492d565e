"""The state of causal linear attention, of fixed size."""

from typing import Any, NamedTuple

from torch import Tensor

from lrpe.arguments import check_real, check_tensor
from lrpe.errors import LrpeError


class DecodingState(NamedTuple):
    """S = Σ k_s v_sᵀ and z = Σ of the normaliser's keys, both decayed up to the last token, and the next position.

    Before the first token it is zeros at position 0. Its size does not depend on the number of tokens.
    """

    S: Tensor  # (batch, key heads, feature_dim, value_dim), float32 or float64
    z: Tensor  # (batch, key heads, delta_dim); delta_dim is 0 for a normaliser without Δ
    position: Tensor  # (batch,) int64: one past the last token's position

    def select(self, rows: Tensor) -> "DecodingState":
        """Return the state of these rows of the batch, in this order: for beam search and shrinking batches."""
        return DecodingState(*(tensor.index_select(0, rows) for tensor in self))

    def detach(self) -> "DecodingState":
        return DecodingState(*(tensor.detach() for tensor in self))


def check_decoding_state(state: Any) -> None:
    if not isinstance(state, DecodingState):
        raise LrpeError(
            f"state must be a DecodingState, made by prefill(x) or initial_state(batch); got {type(state).__name__}."
        )
    check_real("state.S", state.S)
    check_real("state.z", state.z)
    check_tensor("state.position", state.position)
