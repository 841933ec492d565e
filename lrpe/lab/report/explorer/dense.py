"""Matrices, computed by Python, of the factors that the page has no formula for: any registered P, Λ or α.

A Λ is a unitary representation of the integers, so Λ^(s) = Vᴴ diag(e^{isα}) V by Theorem 1: V and α are enough.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lrpe.encodings.basis import Basis
from lrpe.encodings.config import ANGLES, BASES, MATRICES, EncodingConfig
from lrpe.encodings.position_matrix import PositionMatrix
from lrpe.errors import LrpeError, require
from lrpe.theory.derive import from_unitary

# The factors with formulas in bases.js, position_matrices.js and angles.js.
FORMULAS = {
    "bases": ("identity", "householder", "odd-even", "fourier", "cosine"),
    "matrices": ("unitary", "orthogonal", "permutation"),
    "angles": ("geometric", "linear", "harmonic", "constant", "hope", "half-turn", "fractions"),
}
LEARNED = ("learned",)  # exists only in a trained run
DIMS = (8, 16, 32, 64)
COUNTS = sorted({*DIMS, *(dim // 2 for dim in DIMS)})  # Type 1 has an angle per feature, Type 2 one per pair
_EXPONENTS = range(4, 14)  # log2 of the values of the length slider
WIDEST, MOST = 128, 12  # width of a layer, registered factors: more would add megabytes
_TOLERANCE = 1e-8

_Json = dict[str, Any]


def describe_registered() -> tuple[dict[str, dict[str, _Json]], list[str]]:
    """Return the registered factors without a formula, and a sentence per factor that cannot be drawn.

    The first is {"bases" | "matrices": {name: {dim: matrix}}, "angles": {name: {count: {exponent: α}}}}.
    """
    kinds = {"bases": (BASES, _bases), "matrices": (MATRICES, _matrices), "angles": (ANGLES, _angles)}
    written = {*LEARNED, *(name for names in FORMULAS.values() for name in names)}
    names = [(kind, name) for kind, (known, _) in kinds.items() for name in known if name not in written]
    drawn: dict[str, dict[str, _Json]] = {kind: {} for kind in kinds}
    refused = [f"{name}: the page shows at most {MOST} registered factors." for _, name in names[MOST:]]
    for kind, name in names[:MOST]:
        try:
            drawn[kind][name] = kinds[kind][1](name)
        except Exception as error:  # users' code can fail in any way; the other factors are still drawn
            refused.append(f"{name}: {error}" if isinstance(error, LrpeError) else f"{name}: {error!r}")
    return drawn, refused


def write_basis(basis: Basis) -> _Json:
    """Return P as numbers."""
    P = basis.dense()
    error = (P.mH @ P - torch.eye(len(P), dtype=P.dtype)).abs().max()
    require(bool(error < _TOLERANCE), f"P must be unitary, Pᴴ P = I; the error is {error:.1e}.")
    return {"kind": "dense", "complex": basis.is_complex, **_parts(P)}


def write_matrix(matrix: PositionMatrix) -> list[_Json]:
    """Return Λ as numbers, one entry per head, or one entry if all heads share it."""
    heads = matrix.dense(1)
    return [
        {"kind": "dense", "complex": matrix.is_complex, **_diagonalized(matrix, head)}
        for head in range(len(heads) if heads.ndim == 3 else 1)
    ]


def _bases(name: str) -> _Json:
    return {str(dim): write_basis(BASES[name](_config(dim))) for dim in DIMS}


def _matrices(name: str) -> _Json:
    return {str(dim): write_matrix(MATRICES[name](_config(dim), 0))[0] for dim in DIMS}


def _angles(name: str) -> _Json:
    return {str(count): {str(k): _alpha(ANGLES[name], count, 2**k) for k in _EXPONENTS} for count in COUNTS}


def _alpha(formula: Callable[..., Tensor], count: int, length: int) -> list[float]:
    alpha = formula(count, length)
    require(alpha.shape == (count,), f"α must have the shape ({count},); got {tuple(alpha.shape)}.")
    return alpha.double().tolist()


def _config(dim: int) -> EncodingConfig:
    return EncodingConfig(dim, seed=0, length=512)


def _diagonalized(matrix: PositionMatrix, head: int) -> _Json:
    """Return V and α of one head; steps other than 1 check that Λ is a representation of the integers."""
    encoding = from_unitary(_of_head(matrix.dense(1), head))
    V, angles = encoding.basis.dense(), encoding.matrix.angles
    alpha: Tensor = angles.alpha  # type: ignore[assignment]
    for s in (-3, 0, 2, 7, 64):
        power = V.mH @ torch.diag(torch.polar(torch.ones_like(alpha), s * alpha)) @ V
        error = (power - _of_head(matrix.dense(s), head)).abs().max()
        if error > _TOLERANCE:
            raise LrpeError(f"Λ^(s) must be the s-th power of Λ^(1); at s = {s} the error is {error:.1e}.")
    return {**_parts(V, always_complex=True), "alpha": alpha.tolist()}


def _of_head(dense: Tensor, head: int) -> Tensor:
    return dense[head] if dense.ndim == 3 else dense


def _parts(matrix: Tensor, always_complex: bool = False) -> _Json:
    """Return real and imaginary parts as lists of rows; the imaginary part only if it is not 0."""
    imaginary = {"im": _numbers(matrix.imag)} if always_complex or matrix.imag.any() else {}
    return {"re": _numbers(matrix.real), **imaginary}


def _numbers(values: Tensor) -> list:
    """Round to twelve digits, half the size and more than a picture shows; not for α, which positions multiply."""
    if values.ndim > 1:
        return [_numbers(row) for row in values]
    return [float(f"{value:.12g}") for value in values.tolist()]
