"""How the rank of [w(t-s)] grows with the number of positions.

A sequence w is a finite sum of polynomials times exponentials, p(s) λ^s, if and only if the rank of [w(t-s)] stops
growing with the number of positions. For t ≥ s alone the same holds of [w(i+j)], i, j ≥ 0 (Kronecker). So ranks are
measured over ranges that double, and again over every 8th, 64th, ... position: a sequence of rank r has no higher rank
there, while one that looks simple only because it changes slowly does.

Numbers are known up to rounding. A singular value counts if it is above what rounding every w(s) can add to it.
"""

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lrpe.errors import LrpeError, require

_STRIDES = (8, 64, 512, 4096)
_FEW = 32  # the largest rank for which 256 positions suffice
_LEAST = 16  # fewer positions than this show no growth
_ABOVE_ROUNDING, _ABOVE_NEXT = 10, 200  # factors by which the last singular value of a rank must exceed the rest


@dataclass(frozen=True)
class _Rounding:
    """Unit roundoff of the values w(s), and of the angles that s multiplies before w is computed from them."""

    value: float
    angle: float

    def at(self, s: Tensor) -> Tensor:
        """Return a bound of the relative error of w(s)."""
        return self.value + self.angle * math.pi * s.abs()


class Numbers:
    """w(s) = uᵀ W(s) v for random u and v, evaluated once for each s; rank [w(t-s)] is bounded if rank [W(t-s)] is."""

    def __init__(self, W: Callable[[int], Any]):
        first = W(0)
        block = as_matrix(first)
        require(_is_finite(block), f"W(s) must be finite; got W(0) = {block.tolist()}.")
        self.W, self.rounding = W, rounding_of(first)
        self.shape: tuple[int, int] = (block.shape[0], block.shape[1])
        generator = torch.Generator().manual_seed(0)
        self._u, self._v = (torch.randn(n, dtype=torch.float64, generator=generator) for n in self.shape)
        self._known: dict[int, tuple[complex, float] | None] = {}

    def block(self, s: int) -> Tensor | None:
        """Return W(s), or None past the end of a table or of floating point."""
        try:
            block = as_matrix(self.W(s))
        except (LookupError, OverflowError):
            return None
        require(
            tuple(block.shape) == self.shape,
            f"W(s) must have one shape for all s; got {self.shape} for W(0) and {tuple(block.shape)} for W({s}).",
        )
        return block if _is_finite(block) else None

    def at(self, s: int) -> tuple[complex, float] | None:
        """Return w(s), and what |w(s)| would be without cancellation, which bounds the error of rounding W(s)."""
        if s not in self._known:
            block = self.block(s)
            self._known[s] = None if block is None else self._reduce(block)
        return self._known[s]

    def _reduce(self, block: Tensor) -> tuple[complex, float]:
        u, v = self._u, self._v
        if self.shape == (1, 1):  # numbers, for which three products of tensors would take most of the time
            w = complex(block) * float(u * v)
            return w, abs(w)
        return complex(u.to(block.dtype) @ block @ v.to(block.dtype)), float(u.abs() @ block.abs() @ v.abs())


@dataclass(frozen=True)
class _Spectrum:
    """The singular values of the matrix over n positions, and bounds of what rounding adds to them."""

    n: int
    sigma: Tensor
    noise: float  # if values alone are rounded
    noise_of_angles: float  # if angles are rounded too

    def rank(self, noise: float) -> int:
        return int((self.sigma > noise).sum())


@dataclass(frozen=True)
class Growth:
    """Spectra over n/4, n/2 and n positions that are ``stride`` apart.

    To settle, a rank is counted above the rounding of values and angles; to grow, above that of values alone: the
    bound for angles increases with s, and would hide the growth of a bias such as -|s|.
    """

    stride: int
    spectra: tuple[_Spectrum, _Spectrum, _Spectrum]

    @property
    def rank(self) -> int:
        """Return the rank over all n positions, above the rounding of values and angles."""
        return self.spectra[-1].rank(self.spectra[-1].noise_of_angles)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return the ranks by which this growth is judged."""
        settled = self.settled is not None
        return tuple(x.rank(x.noise_of_angles if settled else x.noise) for x in self.spectra)

    @property
    def settled(self) -> int | None:
        """Return the rank if the last doubling added almost nothing and a gap in the singular values ends it, or None.

        A few of many exponentials can lie so close together that half the positions do not tell them apart.
        """
        _, half, whole = self.spectra
        rank = self.rank
        if half.rank(half.noise_of_angles) not in range(rank - rank // 50, half.n):
            return None
        floor = max(_ABOVE_ROUNDING * whole.noise_of_angles, _ABOVE_NEXT * float(whole.sigma[rank]))
        return rank if rank == 0 or float(whole.sigma[rank - 1]) >= floor else None

    @property
    def grows(self) -> bool:
        """Return whether the last doubling added more to the rank than the one before it did."""
        first, second, third = (x.rank(x.noise) for x in self.spectra)
        return third - second >= 1.3 * (second - first) > 0 and third >= 1.2 * second


@dataclass(frozen=True)
class Study:
    """The growth over neighbouring positions and over positions at larger strides, and what follows for w."""

    near: Growth
    far: tuple[Growth, ...]

    @property
    def top(self) -> Growth:
        """Return the growth with the highest rank: neighbours alone do not separate slow exponentials."""
        return max((self.near, *self.far), key=lambda growth: (growth.rank, growth.settled is not None))

    @property
    def answer(self) -> Literal["bounded", "grows", "unclear"]:
        """Return "bounded" if the highest rank has settled, "unclear" if only a lower one has, or "grows"."""
        near, far = self.near, self.far
        if self.top.settled is not None:
            return "bounded"
        if near.settled is None and any(8 * (growth.settled or 0) >= near.rank > 0 for growth in far):
            return "unclear"
        growing = near.grows or any(growth.grows and growth.rank > near.rank for growth in far)
        return "grows" if growing else "unclear"

    @property
    def reach(self) -> int:
        """Return the largest distance of two measured positions."""
        return max(growth.stride * (growth.spectra[-1].n - 1) for growth in (self.near, *self.far))


def study(numbers: Numbers, causal: bool) -> Study:
    """Measure as many positions as the rank needs: neighbours first, then larger strides."""
    near = measure_growth(numbers, 1, 256, causal)
    if near is None:
        raise LrpeError(f"W(s) must be defined and finite for |s| < {_LEAST} at least; this W is not.")
    if near.settled is None or near.settled > _FEW:
        near = measure_growth(numbers, 1, 512, causal) or near
    if near.settled is None and near.rank < near.spectra[-1].n:
        near = measure_growth(numbers, 1, 1024, causal) or near
    if near.rank == near.spectra[-1].n:  # full: one larger stride shows whether w has a long period
        return Study(near, _further(numbers, _STRIDES[:1], 512, causal))
    few = near.settled is not None and near.settled <= _FEW
    far = _further(numbers, _STRIDES, 128 if few else 512, causal)
    if few and any(growth.rank > _FEW for growth in far):
        far = _further(numbers, _STRIDES, 512, causal)
    return Study(near, far)


def _further(numbers: Numbers, strides: tuple[int, ...], n: int, causal: bool) -> tuple[Growth, ...]:
    found = (measure_growth(numbers, stride, n, causal) for stride in strides)
    return tuple(growth for growth in found if growth is not None)


def measure_growth(numbers: Numbers, stride: int, n: int, causal: bool) -> Growth | None:
    """Return the growth up to n positions, or as many as W is known for; None if those are too few."""
    while n >= _LEAST:
        whole = _spectrum(numbers, stride, n, causal)
        quarter, half = (_spectrum(numbers, stride, n // k, causal) for k in (4, 2))
        if whole is not None and half is not None and quarter is not None:
            return Growth(stride, (quarter, half, whole))
        n //= 2
    return None


def forgets(numbers: Numbers, growth: Growth) -> bool:
    """Return whether [w(i+j+1)] has a lower rank than [w(i+j)]: part of w is gone after some steps, as in a window.

    A state that is shifted along computes such a w. But no factors have w(t-s) as their product for all t ≥ s: over n
    positions they need a height of n·(the one rank) - (n-1)·(the other), the least rank of a completed triangle.
    """
    shifted = _spectrum(numbers, growth.stride, growth.spectra[-1].n, causal=True, start=1)
    return shifted is not None and shifted.rank(shifted.noise_of_angles) < growth.rank


def _spectrum(numbers: Numbers, stride: int, n: int, causal: bool, start: int = 0) -> _Spectrum | None:
    """Return the spectrum of [w(t-s)] or [w(start+i+j)] over n positions; None if W is not known for all."""
    offsets = range(start, start + 2 * n - 1) if causal else range(1 - n, n)
    found = [pair for s in offsets if (pair := numbers.at(stride * s)) is not None]
    if len(found) < len(offsets):
        return None
    w = torch.tensor([value for value, _ in found], dtype=torch.complex128)
    size = torch.tensor([bound for _, bound in found], dtype=torch.float64)
    i = torch.arange(n)
    sigma = _singular_values(w[i + i[:, None]] if causal else w[i - i[:, None] + n - 1])
    own = n * torch.finfo(sigma.dtype).eps * float(sigma[0])  # the error of computing the singular values
    error = numbers.rounding.at(stride * torch.tensor(offsets, dtype=torch.float64)) * size
    return _Spectrum(n, sigma, own + numbers.rounding.value * float(size.sum()), own + float(error.sum()))


def _singular_values(matrix: Tensor) -> Tensor:
    """Return the singular values in descending order, by the faster eigvalsh if the matrix is Hermitian."""
    matrix = matrix if matrix.imag.any() else matrix.real
    if torch.equal(matrix, matrix.mH):
        return torch.linalg.eigvalsh(matrix).abs().sort(descending=True).values
    return torch.linalg.svdvals(matrix)


def _is_finite(block: Tensor) -> bool:
    # Of a number, torch's isfinite would take longer than everything else that is done with it.
    return cmath.isfinite(block.item()) if block.numel() == 1 else bool(block.isfinite().all())


def as_matrix(value: Any) -> Tensor:
    """Return a number or a matrix as a complex128 matrix."""
    exact = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.complex128)
    matrix = exact.detach().to("cpu", torch.complex128)
    if matrix.ndim not in (0, 2):
        raise LrpeError(f"W(s) must be a matrix or a number; got a tensor of shape {tuple(matrix.shape)}.")
    return matrix.reshape(1, 1) if matrix.ndim == 0 else matrix


def rounding_of(value: Any) -> _Rounding:
    """Return the rounding of a dtype: of its values, and of the angles that they are computed from.

    Features of half precision come from angles in float32 at least, or they would be wrong after a few positions.
    """
    exact = _Rounding(2.0**-53, 2.0**-53)
    if isinstance(value, int | float | complex | list | tuple):
        return exact
    dtype = torch.as_tensor(value).dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        return exact
    unit = torch.finfo(dtype.to_real()).eps / 2
    return _Rounding(unit, min(unit, 2.0**-24))
