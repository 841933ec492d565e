"""Sums are taken in float32 or float64 whatever the dtype of what is summed, and autocast has no say in it."""

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from lrpe.precision import without_autocast


def in_full_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a tensor and more, with autocast off while it runs. Where it is off anyway this costs nothing."""

    @functools.wraps(function)
    def run(first: Tensor, *rest: Any, **options: Any) -> Any:
        with without_autocast(first):
            return function(first, *rest, **options)

    return run
