"""Integer positions of tokens: in a sequence, from an offset, on a grid, in padded and in packed batches.

Only real tokens are counted, from 0 in each packed sequence. Positions alone do not separate packed sequences; pass
``cu_seqlens`` or ``sequences`` to attention.
"""

import torch
from torch import Tensor

from lrpe.errors import LrpeError, check_count, check_tensor, is_integral, require


def sequence(length: int, offset: int = 0, device: torch.device | str | None = None) -> Tensor:
    """Return offset, offset + 1, ..., offset + length - 1 of shape (length,). The offset may be negative."""
    check_count("length", length, least=0)
    check_count("offset", offset, least=-(2**62), most=2**62)
    return torch.arange(offset, offset + length, device=device)


def grid(*sizes: int, device: torch.device | str | None = None) -> Tensor:
    """Return the cells of a grid in row-major order, one integer per axis; shape (cells, axes).

    >>> grid(2, 3).tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    """
    require(len(sizes) > 0, "sizes must have at least one size; got sizes=().")
    for axis, size in enumerate(sizes):
        check_count(f"sizes[{axis}]", size, least=0)
    axes = [torch.arange(size, device=device) for size in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, -2)


def padded(mask: Tensor) -> Tensor:
    """Return positions that count the real tokens of each row, for padding on either side; (batch, n) -> (batch, n).

    A padding token has the position of the real token before it, or 0; attention masks it out anyway.

    >>> padded(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])).tolist()
    [[0, 0, 0, 1], [0, 1, 2, 2]]
    """
    check_tensor("mask", mask)
    require(mask.ndim == 2, lambda: f"mask must have shape (batch, n); got {tuple(mask.shape)}.")
    return (mask != 0).long().cumsum(-1).sub(1).clamp(min=0)


def packed(cu_seqlens: Tensor) -> Tensor:
    """Return positions that restart at 0 in each packed sequence; (sequences + 1,) boundaries -> (n,).

    >>> packed(torch.tensor([0, 2, 5])).tolist()
    [0, 1, 0, 1, 2]
    """
    check_tensor("cu_seqlens", cu_seqlens)
    require(is_integral(cu_seqlens), lambda: f"cu_seqlens must be integers; got {cu_seqlens.dtype}.")
    require(
        cu_seqlens.device.type != "meta", "cu_seqlens must hold numbers, which a tensor on the meta device does not."
    )
    bounds = cu_seqlens.long()
    rises = bounds.ndim == 1 and len(bounds) > 0 and bool(bounds[0] == 0) and bool((bounds.diff() >= 0).all())
    require(rises, lambda: f"cu_seqlens must be boundaries 0 = b_0 ≤ b_1 ≤ ... ≤ n; got {cu_seqlens.tolist()}.")
    lengths = bounds.diff()
    return torch.arange(int(bounds[-1]), device=bounds.device) - bounds[:-1].repeat_interleave(lengths)


def batched(positions: Tensor, axes: int = 1) -> Tensor:
    """Check positions and add a batch axis: (1 or batch, n), with a last axis of size ``axes`` on a grid."""
    check_tensor("positions", positions)
    if not is_integral(positions) or positions.dtype == torch.bool:
        raise LrpeError(
            f"positions must be integers; got {positions.dtype}. Pass an int64 tensor, such as torch.arange(n)."
        )
    shape = tuple(positions.shape)
    if axes == 1 and positions.ndim not in (1, 2):
        raise LrpeError(f"positions must have shape (n,) or (batch, n); got {shape}.")
    if axes > 1 and not (positions.ndim in (2, 3) and shape[-1] == axes):
        raise LrpeError(
            f"positions on a grid of {axes} axes must have shape (n, {axes}) or (batch, n, {axes}); got {shape}. Make "
            "them by lrpe.positions.grid(height, width)."
        )
    unbatched = positions.ndim == (1 if axes == 1 else 2)
    return (positions[None] if unbatched else positions).long()
