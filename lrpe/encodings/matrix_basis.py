"""P as an explicit d × d matrix: Fourier, cosine, given, or learned."""

import math

import torch
from torch import Tensor

from lrpe.encodings.basis import Basis, Table
from lrpe.errors import LrpeError, require
from lrpe.precision import in_float64, keep, keep_exact, normal


def nearest_unitary(given: Tensor, name: str) -> Tensor:
    """Return the nearest unitary matrix in float64 on the CPU; raise LrpeError if ``given`` is not nearly unitary."""
    if not isinstance(given, Tensor):
        raise LrpeError(f"{name} must be a tensor; got {type(given).__name__}. Pass torch.tensor(...).")
    square = given.ndim == 2 and given.shape[0] == given.shape[1] > 0
    require(square, f"{name} must be a square matrix; got shape {tuple(given.shape)}.")
    W = given.cpu().to(torch.complex128 if given.is_complex() else torch.float64)
    require(
        bool(W.isfinite().all()),
        f"{name} must be finite; got {int((~W.isfinite()).sum())} entries that are nan or inf.",
    )
    residual = float((W.mH @ W - torch.eye(len(W), dtype=W.dtype, device="cpu")).abs().max())
    tolerance = 1e-8 if given.dtype == W.dtype else 1e-5
    require(
        residual <= tolerance,
        f"{name} must be unitary: {name}ᴴ {name} = I to {tolerance:.0e} in {given.dtype}; got a largest difference of "
        f"{residual:.2e}. With U, _, Vh = torch.linalg.svd({name}), U @ Vh is the unitary matrix nearest to it.",
    )
    return _polish(W)


def _polish(W: Tensor) -> Tensor:
    """Return the unitary matrix nearest to a nearly unitary W by Newton-Schulz steps; each squares the error."""
    eye = torch.eye(len(W), dtype=W.dtype, device=W.device)
    for _ in range(4):
        W = W @ (3 * eye - W.mH @ W) / 2
    return W


class _MatrixBasis(Basis):
    """P as a real or complex d × d matrix, kept in float64 so that it is unitary to float64 precision."""

    def __init__(self, P: Tensor):
        super().__init__(len(P))
        self.is_complex = P.is_complex()
        self.P: Tensor  # (d, d), or re above im: (2d, d)
        keep_exact(self, "P", self.carried(P))

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs):
        """Replace a loaded matrix of lower precision, which is only nearly unitary, by the nearest unitary one."""
        loaded = state_dict.get(prefix + "P")
        if loaded is not None and loaded.dtype != torch.float64 and loaded.shape == self.P.shape:
            whole = torch.complex(*loaded.double().chunk(2)) if self.is_complex else loaded.double()
            state_dict[prefix + "P"] = self.carried(_polish(whole))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def carried(self, P: Tensor) -> Tensor:
        """Return a complex matrix as a real one, re above im."""
        return torch.cat([P.real, P.imag]) if self.is_complex else P

    def table(self, dtype: torch.dtype = torch.float32) -> Table:
        return (self.P.to(dtype),)

    def transform(self, x: Tensor, table: Table) -> Tensor:
        return x @ table[0].mT


class Fourier(_MatrixBasis):
    """The unitary discrete Fourier transform: P[j, k] = exp(-2πi jk / d) / √d."""

    def __init__(self, dim: int):
        k = torch.arange(dim, device="cpu")
        turns = (k[:, None] * k % dim).double() / dim
        super().__init__(torch.polar(torch.ones_like(turns), -2 * math.pi * turns) / math.sqrt(dim))


class Cosine(_MatrixBasis):
    """The orthonormal DCT-II: P[j, k] = √(2/d) cos(π j (2k + 1) / 2d), and √(1/d) in the row j = 0."""

    def __init__(self, dim: int):
        k = torch.arange(dim, device="cpu")
        turns = (k[:, None] * (2 * k + 1) % (4 * dim)).double() / (4 * dim)
        P = torch.cos(2 * math.pi * turns) * math.sqrt(2 / dim)
        P[0] = math.sqrt(1 / dim)
        super().__init__(P)


class Dense(_MatrixBasis):
    """The unitary or orthogonal matrix nearest to the given one, in float64."""

    def __init__(self, P: Tensor | list[list[float]]):
        P = P if isinstance(P, Tensor) else torch.tensor(P, dtype=torch.float64, device="cpu")
        super().__init__(P if P.device.type == "meta" else nearest_unitary(P, "P"))


class LearnedOrthogonal(Basis):
    """P = exp(A - Aᵀ), any rotation of the space, with a learned A.

    A is initialised from the seed, or from torch's global generator if the seed is None.
    """

    def __init__(self, dim: int, seed: int | None = None):
        super().__init__(dim)
        self.A: Tensor
        keep(self, "A", normal(dim, dim, seed=seed) / math.sqrt(dim), learned=True)

    def table(self, dtype: torch.dtype = torch.float32) -> Table:
        A = in_float64(self.A)  # in float32 matrix_exp is off by 1e-5
        return (torch.linalg.matrix_exp(A - A.mT).to(self.A.device, dtype),)

    def transform(self, x: Tensor, table: Table) -> Tensor:
        return x @ table[0].mT
