"""What a causal attention remembers: one state of one shape for life."""

from typing import Any, NamedTuple

from torch import Tensor

from lrpe.arguments import check_real, check_tensor
from lrpe.errors import LrpeError


class DecodingState(NamedTuple):
    """S = Σ k_s v_sᵀ and z = Σ of the normaliser's keys, both decayed to the last token; and the next position.

    A state of no token is all zeros at position 0. Its size does not depend on how many tokens it has seen.
    """

    S: Tensor  # (batch, key heads, feature_dim, value_dim), float32 or float64
    z: Tensor  # (batch, key heads, delta_dim); delta_dim is 0 for a normaliser without Δ
    position: Tensor  # (batch,) int64: one past the last token's position

    def select(self, rows: Tensor) -> "DecodingState":
        """The states of some rows of the batch, in that order: for beams, and for batches that shrink."""
        return DecodingState(*(tensor.index_select(0, rows) for tensor in self))

    def detach(self) -> "DecodingState":
        return DecodingState(*(tensor.detach() for tensor in self))


def check_decoding_state(state: Any) -> None:
    if not isinstance(state, DecodingState):
        raise LrpeError(
            f"Linear attention goes on from a DecodingState, made by prefill(x) or initial_state(batch); got "
            f"{type(state).__name__}."
        )
    check_real("state.S", state.S)
    check_real("state.z", state.z)
    check_tensor("state.position", state.position)
