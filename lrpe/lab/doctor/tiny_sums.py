"""One tiny sum of each kind that users run, with its difference from the n × n specification."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lrpe.attention.choices import Quadratic
from lrpe.attention.functional import linear_attention

_Sum = tuple[Callable[[], Tensor], Callable[[], float]]


def _draw() -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = torch.randn(3, 1, 2, 40, 8, generator=torch.Generator().manual_seed(0)).unbind(0)
    return q, k, v


def _whole(causal: bool) -> _Sum:
    q, k, v = (x.requires_grad_() for x in _draw())
    options: dict[str, Any] = {} if causal else {"decay": None}

    def attend(summation: Any) -> Tensor:
        out, _ = linear_attention(q, k, v, summation=summation, **options)
        return torch.cat([out, *torch.autograd.grad(out.square().sum(), (q, k, v))])

    def run() -> Tensor:
        return attend("causal" if causal else "bidirectional")

    return run, lambda: _difference(run(), attend(Quadratic(causal=causal)))


def _step() -> _Sum:
    q, k, v = _draw()
    _, state = linear_attention(q[:, :, :-1], k[:, :, :-1], v[:, :, :-1])

    def run() -> Tensor:
        with torch.no_grad():
            return linear_attention(q[:, :, -1:], k[:, :, -1:], v[:, :, -1:], state=state)[0]

    return run, lambda: _difference(run(), linear_attention(q, k, v, summation=Quadratic())[0][:, :, -1:])


def _difference(a: Tensor, b: Tensor) -> float:
    """Return the largest difference relative to the largest entry; infinite if a result is not a number."""
    a, b = a.detach(), b.detach()
    return float(((a - b).abs().max() / b.abs().max()).nan_to_num(nan=float("inf")))


TINY_SUMS: dict[str, Callable[[], _Sum]] = {
    "causal": lambda: _whole(causal=True),
    "bidirectional": lambda: _whole(causal=False),
    "decoding": _step,
}
