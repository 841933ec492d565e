"""Λ^(s), a function of position with Λ^(0) = I and Λ^(s)ᴴ Λ^(t) = Λ^(t-s)."""

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from lrpe.encodings.precision import Precise, compute_dtype, without_autocast
from lrpe.errors import LrpeError, require
from lrpe.positions import batched, sequence

Table = tuple[Tensor, ...]  # each of shape (batch or 1, heads or 1, n, its own width)


class PositionMatrix(Precise):
    """Λ acts on y = P x, at a position for each row of y.

    ``feature_dim`` is the width of its real features: d, or 2d if Λ is complex. ``heads`` is None if all heads share Λ.
    """

    is_complex: bool = False
    axes: int = 1  # integers in a position: 1 in a sequence, more on a grid

    def __init__(self, dim: int, heads: int | None = None):
        super().__init__()
        require(dim >= 1, f"Λ has a dimension of 1 or more; got dim={dim}.")
        self.dim = dim
        self.heads = heads

    @property
    def feature_dim(self) -> int:
        return 2 * self.dim if self.is_complex else self.dim

    @abstractmethod
    def table(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Table:
        """What Λ computes from the positions, (batch, n) or (batch, n, axes), before it sees the features."""

    @abstractmethod
    def transform(self, y: Tensor, table: Table) -> Tensor:
        """Λ^(s) y, given a table that broadcasts against y: (..., n, dim) -> (..., n, feature_dim).

        A complex Λ also takes complex rows as (re ‖ im), of width 2·dim.
        """

    @abstractmethod
    def dense(self, *s: int) -> Tensor:
        """Λ^(s) as a complex128 matrix, (dim, dim) or (heads, dim, dim): the specification."""

    def forward(self, y: Tensor, positions: Tensor | None = None) -> Tensor:
        dtype = compute_dtype(y.dtype)
        with without_autocast(y):
            table = self.table(positions_for(y, positions, self.axes), dtype)
            return per_head(self.transform, y.to(dtype), table, self.heads).to(y.dtype)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


def positions_for(x: Tensor, positions: Tensor | None, axes: int) -> Tensor:
    """The positions of x's rows with a batch axis; 0, 1, ... if none are given."""
    n = x.shape[-2]
    if positions is None:
        if axes != 1:
            raise LrpeError(
                f"A grid of {axes} axes has no positions of its own; pass lrpe.positions.grid(height, width)."
            )
        return sequence(n, device=x.device)[None]
    if positions.device != x.device:
        raise LrpeError(
            f"Positions live where the features do; got {positions.device} and {x.device}. Move one of them."
        )
    positions = batched(positions, axes)
    if positions.shape[1] != n:  # not require(): writing a size into a message makes a compiler fix it
        raise LrpeError(
            f"Every row has one position; got {positions.shape[1]} positions for {n} rows of x {tuple(x.shape)}."
        )
    return positions


def per_head(transform: Callable[[Tensor, Table], Tensor], x: Tensor, table: Table, heads: int | None) -> Tensor:
    """``transform(x, table)`` with the table laid against x's batch and head axes; x is (..., n, d).

    Rows of positions belong to x's first axis. With ``heads`` given, x's axis -3 counts heads, or groups of
    queries a head (grouped queries: query head h uses key head h // group).
    """
    if heads is None:
        return transform(x, tuple(align(t, x, "batch") for t in table))
    if x.ndim < 3 or x.shape[-3] % heads != 0:
        raise LrpeError(
            f"This encoding has {heads} heads, so x is (..., heads, n, d) with a multiple of {heads} heads; "
            f"got {tuple(x.shape)}."
        )
    if x.shape[-3] == heads:
        return transform(x, tuple(align(t, x, "heads") for t in table))
    grouped = x.unflatten(-3, (heads, -1))  # (..., heads, group, n, d)
    return transform(grouped, tuple(align(t, x, "heads").unsqueeze(-3) for t in table)).flatten(-4, -3)


def align(t: Tensor, x: Tensor, lone_axis: str) -> Tensor:
    """(batch or 1, heads or 1, n, w) -> a shape that broadcasts against x; ``lone_axis`` names x's if it has one."""
    if t.shape[-2] != x.shape[-2]:
        raise LrpeError(f"The table holds {t.shape[-2]} positions; x {tuple(x.shape)} has {x.shape[-2]}.")
    batch = t.shape[0]
    lead = x.ndim - 2
    has_batch_axis = lead >= 2 or (lead == 1 and lone_axis == "batch")
    if batch != 1 and not (has_batch_axis and batch == x.shape[0]):
        raise LrpeError(
            f"Positions of shape (batch, n) align with the first axis of x; got {batch} rows of positions for x "
            f"{tuple(x.shape)}{'' if has_batch_axis else ', which has no batch axis'}."
        )
    if lead == 0:
        return t[0, 0]
    if lead == 1:
        return t[:, 0] if lone_axis == "batch" else t[0]
    return t.reshape(batch, *(1,) * (lead - 2), *t.shape[1:])
