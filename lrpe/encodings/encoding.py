"""M_s = Λ^(s) P: the factor that encodes a query or a key at position s."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from lrpe.autograd import registered
from lrpe.encodings.basis import Basis
from lrpe.encodings.position_matrix import Layout, PositionMatrix, Table, per_head, positions_for, rows_last, tensors_of
from lrpe.errors import LrpeError, require
from lrpe.positions import batched
from lrpe.precision import Precise, compute_dtype, keep_exact, without_autocast
from lrpe.registry import Registry


class PositionalEncoding(Precise):
    """What attention needs to know about an encoding of queries and keys, inside or outside the family.

    Attributes:
        acts: whether it is applied before or after the feature map φ.
        relative: whether its scores depend on t-s exactly.
        one_for_both: whether queries and keys are encoded alike.
        decay: the factor per head and step by which scores decay, or None.
        score_scale: the factor of every score.
        angle_count: the number of its angles, each of which a token-dependent step may turn; None if it has none.
        steps: "fixed", or whether an attention layer takes its steps from the tokens: one per "head", one per "angle",
            one per angle times a Δ that a decay may share ("shared"), one from 0 to 1 per angle ("switch"), or by a
            rule of ``STEP_RULES``.
    """

    head_dim: int
    feature_dim: int
    heads: int | None
    axes: int
    acts: Literal["before", "after"]
    relative: bool
    one_for_both: bool = False
    decay: Tensor | None
    score_scale: float
    angle_count: int | None = None
    steps: str = "fixed"

    @abstractmethod
    def table(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> tuple:
        """Return what does not depend on the features; compute it once for queries and keys."""

    def phase_table(self, phases: Tensor, dtype: torch.dtype = torch.float32) -> tuple:
        """Return ``table`` at real phases p_t = Σ_{τ≤t} u_τ, so that token τ makes a step u_τ instead of 1.

        Args:
            phases: sums of the steps in float64, (batch or 1, heads or 1, n), or (batch or 1, heads or 1, n,
                angle_count) with one phase per angle. Their heads are those of the keys.
            dtype: the dtype of the features.

        Raises:
            LrpeError: the encoding has no angles, so it is defined for integer positions only.
        """
        raise LrpeError(
            "Token-dependent steps need an encoding M_p = Λ^(p) P at real phases p, which only an Encoding with angles "
            f"has; got {type(self).__name__}. Use lrpe.encoding('type1', ...) or lrpe.encoding('type2', ...)."
        )

    def tables(self, positions: Tensor, key_positions: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
        """Return a table for queries and one for keys at other positions, as in cross-attention."""
        return self.table(positions, dtype), self.table(key_positions, dtype)

    @abstractmethod
    def query(self, q: Tensor, table: Any, layout: Layout = "bhnd") -> Tensor:
        """Encode queries: (..., n, head_dim) -> (..., n, feature_dim); with layout "bnhd" heads come after rows."""

    @abstractmethod
    def key(self, k: Tensor, table: Any, layout: Layout = "bhnd") -> Tensor:
        """Encode keys, as ``query`` does queries."""


STEPS = ("fixed", "head", "angle", "shared", "switch")
# Rules of users' own: (width, key heads, angles) -> a module like lrpe.attention.steps.Steps, which token-dependent
# encodings name in ``steps``.
STEP_RULES: Registry[Callable[[int, int, int], Any]] = Registry({})


def check_steps(steps: object) -> None:
    """Raise LrpeError unless ``steps`` is the name of a rule."""
    known = (*STEPS, *STEP_RULES)
    require(steps in known, f"steps must be one of {', '.join(known)}; got steps={steps!r}.")


class EncodingTable(NamedTuple):
    basis: tuple[Tensor, ...]
    matrix: Table


class Encoding(PositionalEncoding):
    """(M_s q)ᴴ (M_t k) = qᴴ W_{t-s} k, with M_s = Λ^(s) P and W_s = Pᴴ Λ^(s) P.

    With a key phase δ, keys are M_s' = Λ^(s) D P for a D of Λ's own form, so that W_s = Pᴴ Λ^(s) D P.

    Any basis can be combined with any position matrix. If either is complex the features are (re ‖ im), of width 2d,
    and their real inner product is the real part of the score.

    >>> from lrpe import Householder, Orthogonal
    >>> encode = Encoding(Householder(64), Orthogonal(64))
    >>> encode(torch.ones(2, 8, 100, 64)).shape
    torch.Size([2, 8, 100, 64])
    """

    relative = True
    basis: Basis = registered("_modules")
    matrix: PositionMatrix = registered("_modules")

    def __init__(
        self,
        basis: Basis,
        matrix: PositionMatrix,
        acts: Literal["before", "after"] = "after",
        decay: Tensor | None = None,
        steps: str = "fixed",
    ):
        super().__init__()
        if not (isinstance(basis, Basis) and isinstance(matrix, PositionMatrix)):
            given = f"{type(basis).__name__} and {type(matrix).__name__}"
            raise LrpeError(f"Encoding(P, Λ) takes a Basis and a PositionMatrix, in that order; got {given}.")
        require(basis.dim == matrix.dim, f"P and Λ must have equal dim; got {basis.dim} and {matrix.dim}.")
        require(acts in ("before", "after"), f"acts must be 'before' or 'after' (φ); got acts={acts!r}.")
        if decay is not None:
            inside = decay.ndim == 1 and bool(((decay > 0) & (decay <= 1)).all())
            require(inside, f"decay must have one r with 0 < r ≤ 1 per head, in shape (heads,); got {decay.tolist()}.")
            require(
                matrix.heads in (None, len(decay)),
                f"decay must have one r per head; got {len(decay)} for {matrix.heads} heads.",
            )
        check_steps(steps)
        require(
            steps == "fixed" or matrix.angle_count is not None,
            f"steps={steps!r} needs a Λ of Type 1 or 2 along a sequence; got {type(matrix).__name__}. Pass "
            "steps='fixed'.",
        )
        self.basis, self.matrix, self.steps = basis, matrix, steps
        self.one_for_both = not matrix.has_key_phase
        self.head_dim, self.heads, self.axes = basis.dim, matrix.heads, matrix.axes
        self.feature_dim = 2 * basis.dim if basis.is_complex or matrix.is_complex else basis.dim
        self.acts, self.score_scale, self.angle_count = acts, matrix.score_scale, matrix.angle_count
        self.register_buffer("decay", None)
        if decay is not None:
            keep_exact(self, "decay", decay)

    def table(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> EncodingTable:
        with without_autocast(positions):
            return EncodingTable(
                self.basis.table(compute_dtype(dtype)),
                self.matrix.checked_table(batched(positions, self.axes), compute_dtype(dtype)),
            )

    def phase_table(self, phases: Tensor, dtype: torch.dtype = torch.float32) -> EncodingTable:
        with without_autocast(phases):
            return EncodingTable(
                self.basis.table(compute_dtype(dtype)), self.matrix.phase_table(phases, compute_dtype(dtype))
            )

    def forward(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        table: EncodingTable | None = None,
        layout: Layout = "bhnd",
    ) -> Tensor:
        """Return M_s x for every row x at its position s; (..., n, head_dim) -> (..., n, feature_dim), in x's dtype.

        Args:
            x: rows of queries or keys, such as (n, d), (batch, n, d) or (batch, heads, n, d). An x of shape (batch, n,
                heads, d), as in flash-attn, needs ``layout="bnhd"``: without positions nothing tells its rows from
                its heads.
            positions: integers of shape (n,), or (batch, n) for the first axis of x; 0, 1, ... if not given.
            table: the result of ``table(positions)`` or ``phase_table(phases)``, instead of positions.
            layout: "bhnd", or "bnhd" if the heads of x come after its rows; the result has the layout of x.
        """
        check_features(x, self.head_dim)
        x = rows_last(x, layout)
        if table is None:
            table = self.table(positions_for(x, positions, self.axes), x.dtype)
        elif positions is not None:
            raise LrpeError("Pass positions or table, not both: a table contains its positions.")
        else:
            check_table(table, x)
        with without_autocast(x):
            y = self.basis.transform(x.to(compute_dtype(x.dtype)), table.basis)
            return rows_last(per_head(self.turn, y, table.matrix, self.heads).to(x.dtype), layout)

    def query(self, q: Tensor, table: EncodingTable, layout: Layout = "bhnd") -> Tensor:
        return self(q, table=table, layout=layout)

    def key(self, k: Tensor, table: EncodingTable, layout: Layout = "bhnd") -> Tensor:
        if self.matrix.has_key_phase:
            check_table(table, k)
            table = table._replace(matrix=self.matrix.key_table(table.matrix))
        return self(k, table=table, layout=layout)

    def extra_repr(self) -> str:
        shown = [] if self.acts == "after" else ["acts='before'"]
        shown += [] if self.heads is None else [f"heads={self.heads}"]
        shown += [] if self.steps == "fixed" else [f"steps={self.steps!r}"]
        shown += [] if self.decay is None else [f"decay={[round(r, 4) for r in self.decay.tolist()]}"]
        shown += [] if self.score_scale == 1 else [f"score_scale={self.score_scale:.4g}"]
        return ", ".join(shown)

    def turn(self, y: Tensor, table: Table) -> Tensor:
        """Return Λ^(s) y; a real Λ acts on the real and the imaginary part of a complex y separately."""
        if self.basis.is_complex and not self.matrix.is_complex:
            return torch.cat([self.matrix.transform(part, table) for part in y.chunk(2, -1)], -1)
        return self.matrix.transform(y, table)


def check_features(x: Tensor, head_dim: int) -> None:
    if x.ndim < 2 or x.shape[-1] != head_dim:
        raise LrpeError(f"x must have shape (..., n, head_dim) with head_dim={head_dim}; got {tuple(x.shape)}.")
    require(x.is_floating_point(), lambda: f"x must be real floating-point numbers; got {x.dtype}.")


def check_table(table: EncodingTable, x: Tensor) -> None:
    if not isinstance(table, EncodingTable):
        raise LrpeError(f"table must come from this encoding's table(positions); got {type(table).__name__}.")
    if any(t.is_floating_point() and t.dtype != compute_dtype(x.dtype) for t in tensors_of(table)):
        raise LrpeError(
            f"table must have been made for the dtype of x; for {x.dtype} make it by table(positions, x.dtype)."
        )
