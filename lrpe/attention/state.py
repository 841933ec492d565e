"""What a causal attention remembers: one state of one shape for life."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from lrpe.attention.frame import Frame
from lrpe.attention.full_precision import in_full_precision
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


def check_kind(state: Any) -> None:
    if not isinstance(state, DecodingState):
        raise LrpeError(
            f"Linear attention goes on from a DecodingState, made by prefill(x) or initial_state(batch); got "
            f"{type(state).__name__}."
        )


@in_full_precision
def step_sum(
    q: Tensor, k: Tensor, v: Tensor, frame: Frame, S: Tensor, gap: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """One token: S ← r^gap S + k vᵀ, o = q S. q is (batch, heads, 1, f); returns o and the new S."""
    if frame.decay is not None:
        ones = torch.ones(1, dtype=torch.long, device=S.device)
        S = S * frame.fade(ones if gap is None else gap, S.dtype)[..., None, None]
    S = torch.addcmul(S, k.to(S.dtype).mT, v.to(S.dtype))
    (batch, heads, _, f), key_heads = q.shape, S.shape[1]
    rows = q.to(S.dtype).reshape(batch, key_heads, heads // key_heads, f)
    return (rows @ S).view(batch, heads, 1, S.shape[-1]), S
