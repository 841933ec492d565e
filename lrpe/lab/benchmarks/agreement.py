"""Two sides are timed only if they give the same answer: outputs and gradients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lrpe.errors import require

_Side = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Agreement:
    """The largest difference between two sides, relative to the largest entry."""

    sides: tuple[str, str]
    compared: str
    outputs: float
    gradients: float
    tolerance: float


def check_agreement(names: tuple[str, str], sides: tuple[_Side, _Side], x: Tensor, tolerance: float, compared: str):
    """How far the two sides are apart at x; ``LrpeError`` if that is further than the tolerance."""
    (a, da), (b, db) = (answer(side, x) for side in sides)
    agreement = Agreement(names, compared, difference(a, b), difference(da, db), tolerance)
    require(
        max(agreement.outputs, agreement.gradients) <= tolerance,
        f"Only sides that give the same {compared} are timed; {names[0]} and {names[1]} differ by "
        f"{agreement.outputs:.1e} in the outputs and {agreement.gradients:.1e} in the gradients, where {tolerance:.1e} "
        "is allowed. Find out which is wrong before asking which is fast.",
    )
    return agreement


def largest_difference(agreements: Sequence[Agreement]) -> float:
    """The largest of all the differences."""
    return max(max(agreement.outputs, agreement.gradients) for agreement in agreements)


def answer(side: _Side, x: Tensor) -> tuple[Tensor, Tensor]:
    """What a side makes of x, and the gradient at x of its inner product with fixed weights."""
    leaf = x.detach().clone().requires_grad_()
    out = side(leaf)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(0), dtype=out.dtype)
    (gradient,) = torch.autograd.grad(out, leaf, weights)
    return out.detach(), gradient


def difference(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        return float("inf")
    worst = (a - b).abs().max() / b.abs().max().clamp(min=torch.finfo(b.dtype).tiny)
    return float(worst.nan_to_num(nan=float("inf")))
