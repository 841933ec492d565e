"""Two implementations are timed only if their outputs and gradients agree."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lrpe.errors import require

_Side = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Agreement:
    """The largest differences between two implementations, relative to the largest entry."""

    sides: tuple[str, str]
    compared: str
    outputs: float
    gradients: float
    tolerance: float


def check_agreement(names: tuple[str, str], sides: tuple[_Side, _Side], x: Tensor, tolerance: float, compared: str):
    """Compare two implementations at x.

    Raises:
        LrpeError: their outputs or gradients differ by more than the tolerance.
    """
    (a, da), (b, db) = (answer(side, x) for side in sides)
    agreement = Agreement(names, compared, difference(a, b), difference(da, db), tolerance)
    require(
        max(agreement.outputs, agreement.gradients) <= tolerance,
        f"Only implementations with the same {compared} are timed; {names[0]} and {names[1]} differ by "
        f"{agreement.outputs:.1e} in the outputs and {agreement.gradients:.1e} in the gradients; the tolerance is "
        f"{tolerance:.1e}. Find out which one is wrong before timing them.",
    )
    return agreement


def largest_difference(agreements: Sequence[Agreement]) -> float:
    """Return the largest of all differences in outputs and gradients."""
    return max(max(agreement.outputs, agreement.gradients) for agreement in agreements)


def answer(side: _Side, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return side(x), and the gradient at x of its inner product with fixed random weights."""
    leaf = x.detach().clone().requires_grad_()
    out = side(leaf)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(0), dtype=out.dtype).to(out.device)
    (gradient,) = torch.autograd.grad(out, leaf, weights)
    return out.detach(), gradient


def difference(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        return float("inf")
    worst = (a - b).abs().max() / b.abs().max().clamp(min=torch.finfo(b.dtype).tiny)
    return float(worst.nan_to_num(nan=float("inf")))
