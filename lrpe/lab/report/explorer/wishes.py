"""Kernels that attention is wished to have, and the angles that match them, as data for the page."""

from collections.abc import Sequence
from typing import Any

import torch

from lrpe.errors import LrpeError, require, unknown_name
from lrpe.lab.report.explorer.dense import COUNTS
from lrpe.theory.kernels import KERNELS
from lrpe.theory.matching import matching

LENGTH = 256  # distances
_MOST = 8  # kernels: each takes seconds


def match_kernels(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return {name: {"values", "alpha"}} of kernels such as "gaussian:16": f(m)/f(0), and α by the number of angles.

    Raises:
        LrpeError: a kernel has no such name or width, or there are more than eight.
    """
    require(len(names) <= _MOST, f"The explorer matches at most {_MOST} kernels; got {len(names)}.")
    return {name: _match(name) for name in names}


def _match(name: str) -> dict[str, Any]:
    kind, _, width = name.partition(":")
    if kind not in KERNELS:
        raise unknown_name("kernel", kind, KERNELS)
    try:
        kernel = KERNELS[kind](float(width))
    except ValueError as error:
        known = isinstance(error, LrpeError)
        raise LrpeError(
            str(error) if known else f"A kernel is written NAME:WIDTH, such as gaussian:16; got {name!r}."
        ) from None
    f = kernel(torch.arange(LENGTH, dtype=torch.float64))
    alpha = {str(count): matching(kernel, count, LENGTH).alpha.tolist() for count in COUNTS}
    return {"values": (f / f[0]).tolist(), "alpha": alpha}
