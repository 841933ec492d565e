"""Λ^(s), a function of position with Λ^(0) = I and Λ^(s)ᴴ Λ^(t) = Λ^(t-s)."""

from abc import abstractmethod

import torch
from torch import Tensor

from lrpe.encodings.adjoint import HasAdjoint
from lrpe.encodings.alignment import Table, check_axes, per_head, positions_for
from lrpe.errors import LrpeError, require
from lrpe.precision import Precise, compute_dtype, without_autocast


class PositionMatrix(HasAdjoint, Precise):
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

    def transform_(self, y: Tensor, table: Table) -> Tensor:
        """Return ``transform(y, table)``, and may overwrite y: the caller must not read y again."""
        return self.transform(y, table)

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
