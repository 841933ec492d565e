"""Kernels f(m) of the distance m = |t - s| that attention may be wished to have, each of a width, with f(0) = 1."""

from collections.abc import Callable

import torch
from torch import Tensor

from lrpe.errors import is_number, require
from lrpe.theory.instances import T5Buckets

Kernel = Callable[[Tensor], Tensor]


def gaussian(width: float) -> Kernel:
    """Return f(m) = exp(-m² / 2·width²), which is positive definite."""
    _check_width(width)
    return lambda m: torch.exp(-((m / width) ** 2) / 2)


def exponential(width: float) -> Kernel:
    """Return f(m) = exp(-m / width), which is positive definite."""
    _check_width(width)
    return lambda m: torch.exp(-m / width)


def window(width: float) -> Kernel:
    """Return f(m) = 1 for m < width and 0 beyond, which is not positive definite if 1 < width < length."""
    _check_width(width)
    return lambda m: (m < width).to(m.dtype)


def t5(width: float) -> Kernel:
    """Return f(m) = 1 / (1 + first / width), with ``first`` the smallest distance in m's bucket of a causal T5.

    It is a table like T5's: distances below 16 have a value each, larger ones share a value up to 128, and all beyond
    share the last. It is not positive definite.
    """
    _check_width(width)
    return lambda m: 1 / (1 + _first_in_bucket(m) / width)


def _first_in_bucket(m: Tensor) -> Tensor:
    bucket = T5Buckets(1, bidirectional=False, seed=0).row(-m.long())
    first = torch.full((int(bucket.max()) + 1,), torch.inf, dtype=m.dtype, device=m.device)
    return first.scatter_reduce(0, bucket, m, "amin")[bucket]


def _check_width(width: float) -> None:
    holds = is_number(width) and 0 < width < float("inf")
    require(holds, lambda: f"width must be a finite number above 0, of tokens; got width={width!r}.")


KERNELS: dict[str, Callable[[float], Kernel]] = {
    "gaussian": gaussian,
    "exponential": exponential,
    "window": window,
    "t5": t5,
}
