"""P, the fixed or learned unitary change of basis in W_s = Pᴴ Λ^(s) P."""

import math
from abc import abstractmethod

import torch
from torch import Tensor

from lrpe.encodings.gather import Gather
from lrpe.encodings.precision import LACK_FLOAT64, Precise, compute_dtype, in_float64, keep, normal, without_autocast
from lrpe.errors import require

Table = tuple[Tensor, ...]  # what can be computed before the features are seen; made once, it serves q and k


class Basis(Precise):
    """P with Pᴴ P = I. A complex basis carries a complex vector as the real one (re ‖ im), twice as wide."""

    is_complex: bool = False

    def __init__(self, dim: int):
        super().__init__()
        require(dim >= 1, f"A basis has a dimension of 1 or more; got dim={dim}.")
        self.dim = dim

    @abstractmethod
    def table(self, dtype: torch.dtype = torch.float32) -> Table:
        """What P computes from its parameters alone."""

    @abstractmethod
    def transform(self, x: Tensor, table: Table) -> Tensor:
        """P x for x of the table's dtype: (..., dim) -> (..., dim), or (..., 2·dim) for a complex basis."""

    def forward(self, x: Tensor) -> Tensor:
        dtype = compute_dtype(x.dtype)
        with without_autocast(x):
            return self.transform(x.to(dtype), self.table(dtype)).to(x.dtype)

    @torch.no_grad()
    def dense(self) -> Tensor:
        """P as a complex128 matrix, for the verifier."""
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


class Householder(Basis):
    """P = H_1 H_2 ⋯ H_m with H_i = I - 2 v_i v_iᵀ / (v_iᵀ v_i): m reflections, so det P = (-1)^m.

    The v_i are drawn from a seed, and learned if asked. No epsilon is added to the norm, so P is orthogonal for any v.

    Their product is I - Vᵀ T V, where V has the rows v_i and T⁻¹ is the upper triangle of V Vᵀ with half its diagonal:
    a matrix-vector product and a rank-m update, never a d × d matrix.
    """

    def __init__(self, dim: int, reflections: int = 1, seed: int = 0, learned: bool = False):
        super().__init__(dim)
        require(
            1 <= reflections <= dim,
            f"Every orthogonal d × d matrix is a product of at most d reflections; got reflections={reflections}, "
            f"dim={dim}.",
        )
        self.reflections = reflections
        v = normal(reflections, dim, seed=seed)
        self.v: Tensor
        keep(self, "v", v / v.norm(dim=-1, keepdim=True), learned)

    def table(self, dtype: torch.dtype = torch.float32) -> Table:
        V = self.v.to(dtype)
        gram = V @ V.mT
        T_inverse = gram.triu(1) + torch.diag(gram.diagonal() / 2)
        # x P ᵀ for rows x is x - (x Vᵀ) Tᵀ V, and (H_1 ⋯ H_m)ᵀ = H_m ⋯ H_1
        return V, solve_lower(T_inverse.mT, V)

    def transform(self, x: Tensor, table: Table) -> Tensor:
        V, U = table
        return LowRankUpdate.apply(x, V, U)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, reflections={self.reflections}, learned={self.v.requires_grad}"


def solve_lower(L: Tensor, V: Tensor) -> Tensor:
    """U with L U = V for a lower triangular L: row by row if there is one, or for exporters, which have no solver."""
    if len(L) > 1 and not torch.compiler.is_exporting():
        return torch.linalg.solve_triangular(L, V, upper=False)
    rows: list[Tensor] = []
    for i in range(len(L)):
        known = sum((L[i, j] * rows[j] for j in range(i)), torch.zeros_like(V[i]))
        rows.append((V[i] - known) / L[i, i])
    return torch.stack(rows)


class LowRankUpdate(torch.autograd.Function):
    """x - (x Vᵀ) U for rows x, whose gradient g - (g Uᵀ) V is an update of the same form."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, V: Tensor, U: Tensor) -> Tensor:
        if len(V) == 1:  # one pass over x; a product with a single row would write x Vᵀ U out first
            return torch.addcmul(x, x @ V.mT, U, value=-1)
        return x - (x @ V.mT) @ U

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (g,) = grads
        x, V, U = ctx.saved_tensors
        dx = LowRankUpdate.apply(g, U, V) if ctx.needs_input_grad[0] else None
        dV = -rows(g @ U.mT).mT @ rows(x) if ctx.needs_input_grad[1] else None
        dU = -rows(x @ V.mT).mT @ rows(g) if ctx.needs_input_grad[2] else None
        return dx, dV, dU


def rows(x: Tensor) -> Tensor:
    """(..., d) -> (N, d)."""
    return x.reshape(-1, x.shape[-1])


class OddEven(Basis):
    """The interleaving y[2k] = x[k], y[2k+1] = x[⌈d/2⌉ + k]: the paper's "Permutation" P.

    Rotating neighbours after it gives the scores of Llama's layout, which rotates x[k] with x[d/2 + k].
    """

    def table(self, dtype: torch.dtype = torch.float32) -> Table:
        k = torch.arange(self.dim)
        return (torch.where(k % 2 == 0, k // 2, (self.dim + 1) // 2 + k // 2),)

    def transform(self, x: Tensor, table: Table) -> Tensor:
        return Gather.apply(x, table[0].to(x.device))


class MatrixBasis(Basis):
    """P written out as a d × d matrix, real or complex; kept in float64 so that it is as unitary as float64 can be."""

    def __init__(self, P: Tensor):
        super().__init__(len(P))
        self.is_complex = P.is_complex()
        P = torch.cat([P.real, P.imag]) if self.is_complex else P
        home = torch.get_default_device()
        self.P: Tensor  # (d, d), or re above im: (2d, d)
        self.register_buffer("P", P.to(home, torch.float32 if home.type in LACK_FLOAT64 else torch.float64))

    def table(self, dtype: torch.dtype = torch.float32) -> Table:
        return (self.P.to(dtype),)

    def transform(self, x: Tensor, table: Table) -> Tensor:
        return x @ table[0].mT


class Fourier(MatrixBasis):
    """The unitary discrete Fourier transform: P[j, k] = exp(-2πi jk / d) / √d."""

    def __init__(self, dim: int):
        k = torch.arange(dim, device="cpu")
        turns = (k[:, None] * k % dim).double() / dim
        super().__init__(torch.polar(torch.ones_like(turns), -2 * math.pi * turns) / math.sqrt(dim))


class Cosine(MatrixBasis):
    """The orthonormal DCT-II: P[j, k] = √(2/d) cos(π j (2k + 1) / 2d), and √(1/d) in the row j = 0."""

    def __init__(self, dim: int):
        k = torch.arange(dim, device="cpu")
        turns = (k[:, None] * (2 * k + 1) % (4 * dim)).double() / (4 * dim)
        P = torch.cos(2 * math.pi * turns) * math.sqrt(2 / dim)
        P[0] = math.sqrt(1 / dim)
        super().__init__(P)


class Dense(MatrixBasis):
    """A unitary or orthogonal matrix that is given."""

    def __init__(self, P: Tensor):
        require(P.ndim == 2 and P.shape[0] == P.shape[1], f"P is a square matrix; got shape {tuple(P.shape)}.")
        if P.device.type != "meta":
            P = P.to(torch.complex128 if P.is_complex() else torch.float64)
            residual = float((P.mH @ P - torch.eye(len(P), device=P.device)).abs().max())
            require(
                residual < 1e-6,
                f"P is unitary: Pᴴ P = I; got a largest difference of {residual:.2e}. "
                "torch.linalg.qr(P).Q is a unitary matrix near to it.",
            )
        super().__init__(P)


class LearnedOrthogonal(Basis):
    """P = exp(A - Aᵀ): any rotation of the space, learned. A is a plain parameter, so it saves and loads as one."""

    def __init__(self, dim: int, seed: int = 0):
        super().__init__(dim)
        self.A: Tensor
        keep(self, "A", normal(dim, dim, seed=seed) / math.sqrt(dim), learned=True)

    def table(self, dtype: torch.dtype = torch.float32) -> Table:
        A = in_float64(self.A)  # in float32 matrix_exp is off by 1e-5
        return (torch.linalg.matrix_exp(A - A.mT).to(self.A.device, dtype),)

    def transform(self, x: Tensor, table: Table) -> Tensor:
        return x @ table[0].mT
