"""Which integer each token gets: in a sequence, from an offset, on a grid, in padded and in packed batches."""

import torch
from torch import Tensor

from lrpe.errors import LrpeError, require


def sequence(length: int, offset: int = 0, device: torch.device | str | None = None) -> Tensor:
    """offset, offset + 1, ..., offset + length - 1; shape (length,). The offset may be negative."""
    if length < 0:
        raise LrpeError(f"A sequence has a length of 0 or more; got {length}.")
    return torch.arange(offset, offset + length, device=device)


def grid(*sizes: int, device: torch.device | str | None = None) -> Tensor:
    """The cells of a grid in row-major order, one integer an axis; shape (cells, axes).

    >>> grid(2, 3).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    """
    require(len(sizes) > 0 and min(sizes) >= 0, f"A grid has one size or more, each 0 or more; got {sizes}.")
    axes = [torch.arange(size, device=device) for size in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, -2)


def padded(mask: Tensor) -> Tensor:
    """Positions counted over the real tokens of each row, whichever side the padding is on; (batch, n) -> (batch, n).

    Padding that stands before the first token gets position 0; it is masked out of the attention anyway.

    >>> padded(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])).tolist()
    [[0, 0, 0, 1], [0, 1, 2, 2]]
    """
    if mask.ndim != 2:
        raise LrpeError(f"A padding mask has shape (batch, n); got {tuple(mask.shape)}.")
    return (mask != 0).long().cumsum(-1).sub(1).clamp(min=0)


def packed(cu_seqlens: Tensor) -> Tensor:
    """Positions that restart at 0 with each of the packed sequences; (sequences + 1,) boundaries -> (n,).

    >>> packed(torch.tensor([0, 2, 5])).tolist()
    [0, 1, 0, 1, 2]
    """
    require(not cu_seqlens.is_floating_point(), f"cu_seqlens are integers; got {cu_seqlens.dtype}.")
    bounds = cu_seqlens.long()
    rises = bounds.ndim == 1 and len(bounds) > 0 and bool(bounds[0] == 0) and bool((bounds.diff() >= 0).all())
    require(rises, f"cu_seqlens are boundaries 0 = b_0 ≤ b_1 ≤ ... ≤ n; got {cu_seqlens.tolist()}.")
    lengths = bounds.diff()
    return torch.arange(int(bounds[-1]), device=bounds.device) - bounds[:-1].repeat_interleave(lengths)


def batched(positions: Tensor, axes: int = 1) -> Tensor:
    """Check positions and give them a batch axis: (1 or batch, n), with a last axis of size ``axes`` on a grid."""
    if not isinstance(positions, Tensor):
        raise LrpeError(f"Positions are a tensor of integers; got {type(positions).__name__}. See torch.tensor.")
    if positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool:
        raise LrpeError(
            f"Positions are integers until the angle is formed; got {positions.dtype}. "
            "Pass an int64 tensor, such as torch.arange(n)."
        )
    shape = tuple(positions.shape)
    if axes == 1 and positions.ndim not in (1, 2):
        raise LrpeError(f"Positions have shape (n,), or (batch, n) which aligns with the batch; got {shape}.")
    if axes > 1 and not (positions.ndim in (2, 3) and shape[-1] == axes):
        raise LrpeError(
            f"Positions on a grid of {axes} axes have shape (n, {axes}) or (batch, n, {axes}); got {shape}. "
            "lrpe.positions.grid(height, width) makes them."
        )
    unbatched = positions.ndim == (1 if axes == 1 else 2)
    return (positions[None] if unbatched else positions).long()
