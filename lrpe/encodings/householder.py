"""P as a product of Householder reflections."""

import torch
from torch import Tensor

from lrpe.autograd import Differentiable
from lrpe.encodings.basis import Basis, Table
from lrpe.errors import require
from lrpe.precision import keep, normal


class Householder(Basis):
    """P = H_1 H_2 ⋯ H_m with H_i = I - 2 v_i v_iᵀ / (v_iᵀ v_i): m reflections, so det P = (-1)^m.

    The product is I - 2 Vᵀ T V, where V has the rows v_i and T⁻¹ is the diagonal of V Vᵀ plus twice its strict upper
    triangle. It is applied as a matrix-vector product and a rank-m update, never as a d × d matrix. No epsilon is added
    to the norm, so P is orthogonal for any v.

    Args:
        dim: d, the size of the vectors.
        reflections: m.
        seed: the seed of v; None draws from torch's global generator, so that every layer has its own.
        learned: whether v is a parameter.
    """

    def __init__(self, dim: int, reflections: int = 1, seed: int | None = None, learned: bool = False):
        super().__init__(dim)
        require(
            1 <= reflections <= dim,
            f"reflections must be from 1 to dim, which gives every orthogonal matrix; got reflections={reflections}, "
            f"dim={dim}.",
        )
        self.reflections = reflections
        v = normal(reflections, dim, seed=seed)
        self.v: Tensor
        keep(self, "v", v / v.norm(dim=-1, keepdim=True), learned)

    def table(self, dtype: torch.dtype = torch.float32) -> Table:
        V = self.v.to(dtype)
        gram = V @ V.mT
        if self.reflections == 1:
            return V, V / gram
        T_inverse = gram.triu() + gram.triu(1)
        # x P ᵀ for rows x is x - 2 (x Vᵀ) Tᵀ V, and (H_1 ⋯ H_m)ᵀ = H_m ⋯ H_1
        return V, _solve_lower(T_inverse.mT, V)

    def transform(self, x: Tensor, table: Table) -> Tensor:
        V, U = table
        return _LowRankUpdate.of(x, V, U)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, reflections={self.reflections}, learned={self.v.requires_grad}"


def _solve_lower(L: Tensor, V: Tensor) -> Tensor:
    """Solve L U = V for a lower triangular L; row by row when exporting, because exporters have no solver."""
    if not torch.compiler.is_exporting():
        return torch.linalg.solve_triangular(L, V, upper=False)
    rows: list[Tensor] = []
    for i in range(len(L)):
        known = sum((L[i, j] * rows[j] for j in range(i)), torch.zeros_like(V[i]))
        rows.append((V[i] - known) / L[i, i])
    return torch.stack(rows)


class _LowRankUpdate(Differentiable):
    """x - 2 (x Vᵀ) U for rows x, whose gradient g - 2 (g Uᵀ) V is an update of the same form."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, V: Tensor, U: Tensor) -> Tensor:
        if len(V) == 1:  # one pass over x; a product with a single row would write x Vᵀ U out first
            return torch.addcmul(x, x @ V.mT, U, value=-2)
        return torch.sub(x, (x @ V.mT) @ U, alpha=2)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (g,) = grads
        x, V, U = ctx.saved_tensors
        dx = _LowRankUpdate.of(g, U, V) if ctx.needs_input_grad[0] else None
        dV = -2 * rows(g @ U.mT).mT @ rows(x) if ctx.needs_input_grad[1] else None
        dU = -2 * rows(x @ V.mT).mT @ rows(g) if ctx.needs_input_grad[2] else None
        return dx, dV, dU


def rows(x: Tensor) -> Tensor:
    """Flatten (..., d) to (N, d)."""
    return x.reshape(-1, x.shape[-1])
