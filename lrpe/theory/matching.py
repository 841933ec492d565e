"""Angles that match a kernel: α whose mean of cosines is close to a wished f(t - s).

(1/d) tr W_m = (1/count) Σ_j cos(m α_j) is the expected score at distance m of a query and key that are equal and point
in a random direction, for any P. By Bochner's theorem such means come arbitrarily close to f if and only if f is
positive definite.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lrpe.errors import LrpeError, check_count, require

_FINENESS = 8  # frequencies per distance in the grid of the spectrum
_LONGEST = 4096  # distances: the eigenvalues of a length × length matrix are computed
_ITERATIONS, _ROUGH = 3000, 200  # of the projected gradient: for the distance, and for angles that are refined anyway
_REFINEMENTS = 100  # steps of Levenberg and Marquardt
_ROUNDING = 1e-9  # per distance: an eigenvalue above -length · _ROUNDING counts as 0
_RANGES = (1 / 64, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of the decays to begin with, as parts of the length


@dataclass(frozen=True)
class Matching:
    """Angles for a kernel f, and how close they come to it. Errors are relative to f(0).

    Attributes:
        alpha: the angles, (count,) in float64, from the largest to the smallest.
        decay: r, if a decay was asked for, else None.
        error: the root of the mean square of r^m (1/count) Σ_j cos(m α_j) - f(m)/f(0) over the distances m.
        largest_error: its largest absolute value.
        distance: the root of the mean square from f/f(0) to the nearest positive definite function, which no angles
            and no decay fall below; 0 if f is positive definite over the length.
        lowest_eigenvalue: the smallest eigenvalue of the matrix f(t - s)/f(0); below 0 if f is not positive definite.
    """

    alpha: Tensor
    decay: float | None
    error: float
    largest_error: float
    distance: float
    lowest_eigenvalue: float

    @property
    def positive_definite(self) -> bool:
        return self.distance == 0

    def __str__(self) -> str:
        decay = "" if self.decay is None else f", decay {self.decay:.6g}"
        told = f"{len(self.alpha)} angles{decay}: error {self.error:.2g}, at most {self.largest_error:.2g}"
        if self.positive_definite:
            return f"{told}; the kernel is positive definite"
        return (
            f"{told}; the kernel is not positive definite: its lowest eigenvalue is {self.lowest_eigenvalue:.3g}, and "
            f"the nearest positive definite function has an error of {self.distance:.2g}"
        )


def matching(
    kernel: Callable[[Tensor], Tensor] | Tensor | Sequence[float], count: int, length: int, decay: bool = False
) -> Matching:
    """Return angles whose mean of cosines is close to a kernel over the distances 0, ..., length - 1.

    Non-negative weights on a grid of frequencies come closest to the kernel; the angles begin at the quantiles of these
    weights, and steps of least squares refine them.

    Args:
        kernel: f, a function of a tensor of distances, or a table with f(0), f(1), ... of at least ``length`` values.
            Its scale is free: it is divided by f(0), since a mean of cosines is 1 at 0.
        count: the number of angles: head_dim / 2 for Type 2, head_dim for Type 1.
        length: the number of distances, at most 4,096.
        decay: whether to look for a decay r too, which multiplies the mean by r^m.

    Raises:
        LrpeError: f has other shapes, is not finite, or f(0) is not above 0, or a size is out of range.

    >>> import lrpe
    >>> from lrpe.theory import gaussian
    >>> matched = lrpe.angles.matching(gaussian(width=32), count=32, length=256)
    >>> matched.error < 0.01
    True
    >>> encode = lrpe.encoding("type2", head_dim=64, angles=matched.alpha.tolist())
    """
    check_count("count", count, most=2**16)
    check_count("length", length, least=2, most=_LONGEST)
    f = _values(kernel, length)
    lowest = _lowest_eigenvalue(f)
    distance = 0.0 if lowest >= -length * _ROUNDING else _distance(f)
    found = [_fit(f, count, rate, decay) for rate in (0.0, *(1 / (part * length) for part in _RANGES))]
    alpha, rate = min(found, key=lambda fit: _rms(_residual(f, *fit)))
    residual = _residual(f, alpha, rate)
    r = math.exp(-rate) if decay else None
    return Matching(
        alpha.sort(descending=True).values, r, _rms(residual), residual.abs().max().item(), distance, lowest
    )


def _values(kernel: Callable[[Tensor], Tensor] | Tensor | Sequence[float], length: int) -> Tensor:
    """Return f(m)/f(0) for m = 0, ..., length - 1 in float64."""
    if callable(kernel) and not isinstance(kernel, Tensor):
        f = kernel(torch.arange(length, dtype=torch.float64, device="cpu"))
        shape = tuple(f.shape) if isinstance(f, Tensor) else type(f).__name__
        require(
            shape == (length,),
            f"kernel must return a tensor with one value per distance, of shape ({length},); got {shape}.",
        )
    else:
        f = _read_table(kernel)
        require(
            f.ndim == 1 and len(f) >= length,
            f"kernel as a table must have one value for each of the {length} distances; got shape {tuple(f.shape)}. "
            "Give more values or a smaller length.",
        )
    real = not f.is_complex() and bool(f.isfinite().all())
    require(real, "kernel must have real, finite values; got others.")
    f = f[:length].detach().to("cpu", torch.float64)
    require(
        f[0].item() > 0,
        f"kernel must be above 0 at distance 0, where a positive definite function is largest; got {f[0].item():.4g}.",
    )
    return f / f[0]


def _read_table(kernel: Tensor | Sequence[float]) -> Tensor:
    try:
        return torch.as_tensor(kernel)
    except (TypeError, ValueError, RuntimeError):
        raise LrpeError(
            f"kernel must be a function of distances or a table of numbers; got {type(kernel).__name__}."
        ) from None


def _lowest_eigenvalue(f: Tensor) -> float:
    """Return the smallest eigenvalue of the Toeplitz matrix f(|t - s|)."""
    m = torch.arange(len(f), device="cpu")
    return torch.linalg.eigvalsh(f[(m[:, None] - m).abs()])[0].item()


def _distance(f: Tensor) -> float:
    """Return the error of the best non-negative weights on the grid of frequencies, without a decay."""
    weights = _spectrum(f, torch.ones_like(f), _ITERATIONS)
    return _rms(_cosine_sums(weights, len(f)) - f)


def _spectrum(f: Tensor, fade: Tensor, iterations: int) -> Tensor:
    """Return the weights w ≥ 0 of the frequencies kπ/K, k = 0, ..., K, with the least ‖fade · Σ_k w_k cos - f‖².

    Projected gradient with momentum, which begins anew where it overshoots (O'Donoghue and Candès, 2015). The cosines
    of the grid are almost orthogonal rows, so that K plus the length bounds the curvature, and both products are FFTs.
    """
    K, length = _FINENESS * len(f), len(f)
    weights = ahead = torch.zeros(K + 1, dtype=f.dtype, device=f.device)
    momentum = 1.0
    for _ in range(iterations):
        residual = fade * (fade * _cosine_sums(ahead, length) - f)
        slope = torch.fft.rfft(residual, n=2 * K).real
        new = (ahead - slope / (K + length)).clamp(min=0)
        change = new - weights
        if change.abs().max() < 1e-13:
            return new
        momentum = 1.0 if (ahead - new) @ change > 0 else momentum
        next_momentum = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / next_momentum * change
        weights, momentum = new, next_momentum
    return weights


def _cosine_sums(weights: Tensor, length: int) -> Tensor:
    """Return Σ_k w_k cos(m kπ/K) for m = 0, ..., length - 1."""
    K = len(weights) - 1
    halves = weights / 2
    halves[0], halves[-1] = weights[0], weights[-1]  # the ends occur once in the circle, all others twice
    return 2 * K * torch.fft.irfft(halves, n=2 * K)[:length]


def _quantiles(weights: Tensor, count: int) -> Tensor:
    """Return the frequencies at the quantiles (j + ½)/count of the weights, the mass of k spread over (k ± ½)π/K."""
    K = len(weights) - 1
    edges = (torch.arange(K + 2, dtype=weights.dtype, device=weights.device) - 0.5).clamp(0, K) * math.pi / K
    mass = torch.cat([weights.new_zeros(1), weights.cumsum(0)])
    wanted = (torch.arange(count, dtype=weights.dtype, device=weights.device) + 0.5) / count * mass[-1]
    cell = torch.searchsorted(mass, wanted).clamp(1, K + 1)
    part = (wanted - mass[cell - 1]) / (mass[cell] - mass[cell - 1])
    return edges[cell - 1] + part * (edges[cell] - edges[cell - 1])


def _fit(f: Tensor, count: int, rate: float, decay: bool) -> tuple[Tensor, float]:
    """Return angles, and the rate of the decay, in a local minimum of the error.

    They begin at the quantiles for the given rate. Without a decay the rate becomes 0: other rates are then only other
    beginnings, which end in other minima.
    """
    m = torch.arange(len(f), dtype=f.dtype, device=f.device)
    alpha = _quantiles(_spectrum(f, torch.exp(-rate * m), _ROUGH), count)
    rate = rate if decay else 0.0
    damping = 1e-3
    residual = _residual(f, alpha, rate)
    for _ in range(_REFINEMENTS):
        step = _refinement(m, residual, alpha, rate, damping, decay)
        new_alpha, new_rate = _fold(alpha + step[:count]), max(rate + step[count:].sum().item(), 0.0)
        new = _residual(f, new_alpha, new_rate)
        if new @ new < residual @ residual:
            settled = residual @ residual - new @ new < 1e-10 * (residual @ residual)
            alpha, rate, residual, damping = new_alpha, new_rate, new, damping / 5
            if settled:
                break
        elif damping > 1e8:
            break
        else:
            damping *= 4
    return alpha, rate


def _refinement(m: Tensor, residual: Tensor, alpha: Tensor, rate: float, damping: float, decay: bool) -> Tensor:
    """Return a step of Levenberg and Marquardt for the angles, followed by one for the rate if there is a decay."""
    fade = torch.exp(-rate * m)[:, None]
    slopes = [-fade * m[:, None] * torch.sin(m[:, None] * alpha) / len(alpha)]
    if decay:
        slopes.append(-m[:, None] * fade * torch.cos(m[:, None] * alpha).mean(1, keepdim=True))
    J = torch.cat(slopes, 1)
    normal = J.mT @ J
    ridge = damping * normal.diagonal().mean() + torch.finfo(J.dtype).tiny
    normal.diagonal().add_(ridge)
    return torch.linalg.solve(normal, -(J.mT @ residual))


def _residual(f: Tensor, alpha: Tensor, rate: float) -> Tensor:
    """Return e^(-rate m) (1/count) Σ_j cos(m α_j) - f(m)."""
    m = torch.arange(len(f), dtype=f.dtype, device=f.device)
    return torch.exp(-rate * m) * torch.cos(m[:, None] * alpha).mean(1) - f


def _fold(alpha: Tensor) -> Tensor:
    """Return the angles from 0 to π with the same cosines at every integer."""
    return torch.pi - (alpha.remainder(2 * torch.pi) - torch.pi).abs()


def _rms(values: Tensor) -> float:
    return values.square().mean().sqrt().item()
