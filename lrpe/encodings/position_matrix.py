"""Λ^(s), a function of position with Λ^(0) = I and Λ^(s)ᴴ Λ^(t) = Λ^(t-s); its tables, aligned with the axes of x."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from lrpe.errors import LrpeError, require
from lrpe.positions import batched, sequence
from lrpe.precision import Precise, compute_dtype, without_autocast

Table = tuple[Any, ...]  # tensors of shape (batch or 1, heads or 1, n, width), or the tables of parts
Layout = Literal["bhnd", "bnhd"]  # where x has its heads: (batch, heads, n, d) or (batch, n, heads, d)


def rows_last(x: Tensor, layout: Layout) -> Tensor:
    """Return a view of x as (..., heads, n, d), the layout in which encodings compute. It is its own inverse."""
    if layout == "bhnd":
        return x
    if layout != "bnhd" or x.ndim < 3:
        raise LrpeError(
            f"layout must be 'bhnd' for x of shape (batch, heads, n, d) or 'bnhd' for (batch, n, heads, d); "
            f"got layout={layout!r} for x {tuple(x.shape)}."
        )
    return x.transpose(-3, -2)


def _swapped_axes_hint(x: Tensor, axis: int, size: int) -> str:
    """Return a hint for the error if x has its rows and heads swapped, else an empty string."""
    swapped = x.ndim >= 3 and x.shape[axis] == size
    return " If x is (batch, n, heads, head_dim), pass layout='bnhd'." if swapped else ""


def tensors_of(table: Table) -> Iterator[Tensor]:
    """Yield every tensor of a table, and of the tables inside it."""
    for entry in table:
        if isinstance(entry, tuple):
            yield from tensors_of(entry)
        else:
            yield entry


def _map_table(change: Callable[[Tensor], Tensor], table: Table) -> Table:
    """Apply ``change`` to every tensor of a table, keeping its nesting."""
    return tuple(_map_table(change, entry) if isinstance(entry, tuple) else change(entry) for entry in table)


def check_axes(table: Table, positions: Tensor, heads: int | None, maker: str) -> Table:
    """Return the table if each of its tensors has the four axes that ``per_head`` aligns with x.

    Without this check a tensor that lacks its head axis would broadcast against the wrong axis of x, silently.
    """
    if not isinstance(table, tuple):
        raise LrpeError(f"{maker}.table(positions) must return a tuple of tensors; got {type(table).__name__}.")
    batch, n = positions.shape[:2]
    for t in tensors_of(table):
        shape = tuple(t.shape)
        if len(shape) != 4 or shape[0] not in (1, batch) or shape[1] not in (1, heads or 1) or shape[2] != n:
            raise LrpeError(
                f"{maker}.table(positions) must return tensors with the axes (batch or 1, heads or 1, n, width): here "
                f"({batch} or 1, {heads or 1}{' or 1' if heads else ''}, {n}, any); got {shape}. "
                "For a table that all heads share, use .unsqueeze(1)."
            )
    return table


def positions_for(x: Tensor, positions: Tensor | None, axes: int) -> Tensor:
    """Return the positions of x's rows with a batch axis; 0, 1, ... if None."""
    n = x.shape[-2]
    if positions is None:
        if axes != 1:
            raise LrpeError(
                f"positions are required for a grid of {axes} axes; pass lrpe.positions.grid(height, width)."
            )
        return sequence(n, device=x.device)[None]
    if isinstance(positions, Tensor) and positions.device != x.device:
        raise LrpeError(
            f"positions and x must be on one device; got {positions.device} and {x.device}. Move one of them."
        )
    positions = batched(positions, axes)
    if positions.shape[1] != n:  # not require(): writing a size into a message makes a compiler fix it
        raise LrpeError(
            f"positions must have one entry per row of x; got {positions.shape[1]} positions for {n} rows of x "
            f"{tuple(x.shape)}." + _swapped_axes_hint(x, -3, positions.shape[1])
        )
    return positions


def per_head(transform: Callable[[Tensor, Table], Tensor], x: Tensor, table: Table, heads: int | None) -> Tensor:
    """Return ``transform(x, table)`` with the table aligned with x's batch and head axes; x is (..., n, d).

    The batch axis of positions is x's first axis. With ``heads`` given, or a table that has heads because its tokens
    make steps per head, x's axis -3 has that many heads, or a multiple of it for grouped queries, where query head h
    uses key head h // group.
    """
    heads = heads or _heads_of(table)
    if heads is None:
        return transform(x, _map_table(lambda t: align(t, x, "batch"), table))
    if x.ndim < 3 or x.shape[-3] % heads != 0:
        raise LrpeError(
            f"This encoding or its table has {heads} heads, so x must be (..., heads, n, d) with a multiple of {heads} "
            f"heads; got {tuple(x.shape)}." + _swapped_axes_hint(x, -2, heads)
        )
    if x.shape[-3] == heads:
        return transform(x, _map_table(lambda t: align(t, x, "heads"), table))
    grouped = x.unflatten(-3, (heads, -1))  # (..., heads, group, n, d)
    return transform(grouped, _map_table(lambda t: align(t, x, "heads").unsqueeze(-3), table)).flatten(-4, -3)


def _heads_of(table: Table) -> int | None:
    """Return the size of the table's head axis, or None if all heads share the table."""
    for t in tensors_of(table):
        if t.shape[1] != 1:
            return t.shape[1]
    return None


def align(t: Tensor, x: Tensor, lone_axis: str) -> Tensor:
    """Reshape (batch or 1, heads or 1, n, w) to broadcast against x.

    ``lone_axis`` says what the first axis of a three-dimensional x is, "batch" or "heads".
    """
    if t.shape[-2] != x.shape[-2]:
        raise LrpeError(
            f"The table must have one position per row of x; got {t.shape[-2]} positions for {x.shape[-2]} rows "
            f"of x {tuple(x.shape)}." + _swapped_axes_hint(x, -3, t.shape[-2])
        )
    batch = t.shape[0]
    lead = x.ndim - 2
    has_batch_axis = lead >= 2 or (lead == 1 and lone_axis == "batch")
    if batch != 1 and not (has_batch_axis and batch == x.shape[0]):
        raise LrpeError(
            f"positions of shape (batch, n) must match the first axis of x; got {batch} rows of positions for x "
            f"{tuple(x.shape)}{'' if has_batch_axis else ', which has no batch axis'}."
        )
    if lead == 0:
        return t[0, 0]
    if lead == 1:
        return t[:, 0] if lone_axis == "batch" else t[0]
    return t if lead == 2 else t.reshape(batch, *(1,) * (lead - 2), *t.shape[1:])


class PositionMatrix(Precise):
    """Λ acts on y = P x, with one position per row of y.

    ``feature_dim`` is the width of its real features: d, or 2d if Λ is complex. ``heads`` is None if all heads share Λ.
    """

    is_complex: bool = False
    axes: int = 1  # integers in a position: 1 in a sequence, more on a grid
    angle_count: int | None = None  # the number of angles, if Λ has angles
    has_key_phase: bool = False  # whether keys turn by a phase δ besides

    def __init__(self, dim: int, heads: int | None = None):
        super().__init__()
        require(dim >= 1, f"dim must be at least 1; got dim={dim}.")
        self.dim = dim
        self.heads = heads

    @property
    def feature_dim(self) -> int:
        return 2 * self.dim if self.is_complex else self.dim

    @property
    def score_scale(self) -> float:
        """The factor of every score: YaRN's temperature if the angles use YaRN, else 1."""
        return 1.0

    @abstractmethod
    def table(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Table:
        """Return what Λ computes from positions (batch, n) or (batch, n, axes) before it sees the features.

        It is a tuple of tensors, each of shape (batch or 1, heads or 1, n, its own width).
        """

    def checked_table(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Table:
        """Return ``table(positions, dtype)``; raise LrpeError if one of its tensors lacks an axis."""
        return check_axes(self.table(positions, dtype), positions, self.heads, type(self).__name__)

    def phase_table(self, phases: Tensor, dtype: torch.dtype = torch.float32) -> Table:
        """Return ``table`` at real phases, the running sums of token-dependent steps, instead of positions.

        Args:
            phases: (batch or 1, heads or 1, n), or (batch or 1, heads or 1, n, angle_count) with one phase per angle.
            dtype: the dtype of the table, float32 or float64.

        Raises:
            LrpeError: Λ is defined for integers only.
        """
        raise LrpeError(
            "Token-dependent steps need Λ^(p) at real phases p, but Λ^(s) of a permutation, of a grid or of an "
            f"alternating part is defined for integers s only; got {self}. "
            "Use Unitary, or Orthogonal with alternating=0."
        )

    def key_table(self, table: Table) -> Table:
        """Return the table of Λ^(s) D for keys, where D = Λ at the angles δ; the table itself if there is no δ."""
        return table

    @abstractmethod
    def transform(self, y: Tensor, table: Table) -> Tensor:
        """Return Λ^(s) y for a table that broadcasts against y: (..., n, dim) -> (..., n, feature_dim).

        A complex Λ also takes complex rows as (re ‖ im), of width 2·dim.
        """

    @abstractmethod
    def dense(self, *s: int) -> Tensor:
        """Return Λ^(s) as a complex128 matrix, (dim, dim) or (heads, dim, dim): the specification."""

    def dense_key_phase(self) -> Tensor:
        """Return D as a complex128 matrix, (dim, dim) or (heads, dim, dim); I if there is no δ."""
        return torch.eye(self.dim, dtype=torch.complex128, device="cpu")

    def forward(self, y: Tensor, positions: Tensor | None = None) -> Tensor:
        dtype = compute_dtype(y.dtype)
        with without_autocast(y):
            table = self.checked_table(positions_for(y, positions, self.axes), dtype)
            return per_head(self.transform, y.to(dtype), table, self.heads).to(y.dtype)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
