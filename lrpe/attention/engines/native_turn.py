"""The table of Type 2's rotations, cos and sin of p α, by the native kernel: in double until they are rounded."""

import torch
from torch import Tensor

from lrpe.attention.engines.library import NativeTurns, call

_PAD = 16  # PAD of vectors.h


def make_turns(phase: Tensor, alpha: Tensor, dim: int) -> Tensor:
    """Return cos and sin of p α by turns, without a gradient, and 1 and 0 for features that stay.

    Args:
        phase: p in float64, (batch or 1, heads or 1, n, 1 or pairs).
        alpha: α in float64, (1 or heads, 1, pairs), contiguous.
        dim: the number of features.

    Returns:
        The table in float32, of the joint shape of p and α with rows of ``dim`` numbers, padded to whole vectors.
    """
    batch, heads, n = phase.shape[0], max(phase.shape[1], alpha.shape[0]), phase.shape[2]
    width = dim + -dim % _PAD
    table = phase.new_empty(batch, heads, n, width, dtype=torch.float32)
    turns = NativeTurns(batch, heads, n, alpha.shape[-1], width, torch.get_num_threads(), phase.data_ptr())
    turns.phase_batch, turns.phase_head, turns.phase_row, turns.phase_pair = strides_of(phase)
    turns.alpha, turns.alpha_head, turns.to = alpha.data_ptr(), strides_of(alpha)[0], table.data_ptr()
    call("lrpe_turns_forward", turns)
    return table


def strides_of(x: Tensor) -> list[int]:
    """Return the strides of x, 0 for an axis of size 1, so that it repeats."""
    return [0 if size == 1 else stride for size, stride in zip(x.shape, x.stride(), strict=True)]
