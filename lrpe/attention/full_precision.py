"""Keep sums in float32 or float64 under autocast."""

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from lrpe.precision import without_autocast


def in_full_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function of a tensor (and more) to run with autocast off; free if autocast is off already."""

    @functools.wraps(function)
    def run(first: Tensor, *rest: Any, **options: Any) -> Any:
        with without_autocast(first):
            return function(first, *rest, **options)

    return run
