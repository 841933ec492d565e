"""P, the unitary change of basis in W_s = Pᴴ Λ^(s) P, and the paper's three: reflections, I, odd-even."""

from abc import abstractmethod

import torch
from torch import Tensor

from lrpe.autograd import Differentiable
from lrpe.errors import require
from lrpe.precision import Precise, compute_dtype, keep, normal, without_autocast


class Gather(Differentiable):
    """Gather y[index] along the last axis by a permutation; its gradient is the gather by the inverse.

    Autograd's own gradient would be a scatter, which is slower and not deterministic on GPUs.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(y: Tensor, index: Tensor) -> Tensor:
        return y.gather(-1, index.expand(y.shape))

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (index,) = ctx.saved_tensors
        return Gather.of(grads[0], _inverse(index)), None


def _inverse(index: Tensor) -> Tensor:
    """Return π⁻¹ for every permutation π along the last axis."""
    places = torch.arange(index.shape[-1], device=index.device).expand(index.shape)
    return torch.empty_like(index).scatter(-1, index, places)


Table = tuple[Tensor, ...]  # what does not depend on the features; computed once and used for q and k


class Basis(Precise):
    """P with Pᴴ P = I. A complex basis represents a complex vector as the real vector (re ‖ im), twice as wide."""

    is_complex: bool = False

    def __init__(self, dim: int):
        super().__init__()
        require(dim >= 1, f"dim must be at least 1; got dim={dim}.")
        self.dim = dim

    @abstractmethod
    def table(self, dtype: torch.dtype = torch.float32) -> Table:
        """Return what P computes from its parameters alone."""

    @abstractmethod
    def transform(self, x: Tensor, table: Table) -> Tensor:
        """Return P x for x of the table's dtype: (..., dim) -> (..., dim), or (..., 2·dim) for a complex basis."""

    def forward(self, x: Tensor) -> Tensor:
        dtype = compute_dtype(x.dtype)
        with without_autocast(x):
            return self.transform(x.to(dtype), self.table(dtype)).to(x.dtype)

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Return P as a complex128 matrix, for the verifier."""
        with torch.device("cpu"):
            columns = torch.eye(self.dim, dtype=torch.float64)
            encoded = self.transform(columns, tuple(t.to("cpu") for t in self.table(torch.float64))).mT
        re, im = encoded.chunk(2, 0) if self.is_complex else (encoded, torch.zeros_like(encoded))
        return torch.complex(re, im)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Identity(Basis):
    """P = I."""

    def table(self, dtype: torch.dtype = torch.float32) -> Table:
        return ()

    def transform(self, x: Tensor, table: Table) -> Tensor:
        return x


class OddEven(Basis):
    """The interleaving y[2k] = x[k], y[2k+1] = x[⌈w/2⌉ + k] of the first w features: the paper's "Permutation" P.

    Rotating neighbours after it gives the scores of Llama's layout, which rotates x[k] with x[w/2 + k]; w = d unless
    ``width`` is given, as for GPT-NeoX, which rotates only the first features.
    """

    def __init__(self, dim: int, width: int | None = None):
        super().__init__(dim)
        self.width = dim if width is None else width
        require(0 <= self.width <= dim, f"width must be from 0 to dim; got width={width}, dim={dim}.")

    def table(self, dtype: torch.dtype = torch.float32) -> Table:
        k = torch.arange(self.dim)
        interleaved = torch.where(k % 2 == 0, k // 2, (self.width + 1) // 2 + k // 2)
        return (torch.where(k < self.width, interleaved, k),)

    def transform(self, x: Tensor, table: Table) -> Tensor:
        return Gather.apply(x, table[0].to(x.device))

    def extra_repr(self) -> str:
        return super().extra_repr() if self.width == self.dim else f"{super().extra_repr()}, width={self.width}"


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

    v: Tensor

    def __init__(self, dim: int, reflections: int = 1, seed: int | None = None, learned: bool = False):
        super().__init__(dim)
        require(
            1 <= reflections <= dim,
            f"reflections must be from 1 to dim, which gives every orthogonal matrix; got reflections={reflections}, "
            f"dim={dim}.",
        )
        self.reflections = reflections
        v = normal(reflections, dim, seed=seed)
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
