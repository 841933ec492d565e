"""The decay r^|t-s| of scores with the distance of query and key; one r per key head."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lrpe.arguments import check_count, check_tensor, has_values
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.errors import LrpeError, require, unknown_name
from lrpe.precision import Precise

DecayChoice = str | Tensor | Sequence[float] | None  # a name, one r per key head, or None


def spread_decay(heads: int) -> list[float]:
    """Return r_h = 1 - 2^-(2 + 1.5h): the first heads forget within a few tokens, later ones after thousands."""
    check_count("heads", heads, most=2**16)
    return [1 - 2 ** -(2 + 1.5 * h) for h in range(heads)]


_DECAYS: dict[str, Callable[[int], list[float]]] = {"spread": spread_decay}


class Decay(Precise):
    """The decay of an attention layer: its own, its encoding's, or None."""

    def __init__(self, r: DecayChoice, encoding: PositionalEncoding, key_heads: int):
        super().__init__()
        given = read_decay(r, encoding, key_heads)
        self.r: Tensor | None
        self.register_buffer("r", None if given is None else given.clone().float().to(torch.get_default_device()))


def read_decay(r: DecayChoice, encoding: PositionalEncoding, key_heads: int) -> Tensor | None:
    """Return the chosen decay, or else the encoding's, after checking it."""
    if r is None and encoding.decay is None:
        return None
    require(
        r is None or encoding.decay is None,
        "This encoding brings its own decay: pass decay=None, or build the encoding with decay=None.",
    )
    require(
        encoding.axes == 1,
        f"A decay counts steps along a sequence; this encoding has a grid of {encoding.axes} axes. Pass decay=None.",
    )
    return _check_decay(encoding.decay if r is None else _to_tensor(r, key_heads), key_heads)


def _to_tensor(r: Any, key_heads: int) -> Tensor:
    """Return a decay given by name, as a tensor or as numbers as a tensor."""
    if isinstance(r, str):
        if r not in _DECAYS:
            raise unknown_name("decay", r, _DECAYS)
        return torch.tensor(_DECAYS[r](key_heads), dtype=torch.float64)
    if isinstance(r, Tensor):
        return r
    try:
        return torch.tensor(r, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # torch raises any of these for non-numbers
        names = ", ".join(map(repr, _DECAYS))
        raise LrpeError(f"decay must be {names}, one number per key head, or None; got {type(r).__name__}.") from None


def _check_decay(r: Tensor | None, key_heads: int) -> Tensor:
    check_tensor("decay", r)
    assert r is not None
    require(
        r.shape == (key_heads,) and r.is_floating_point(),
        lambda: f"decay must have one r per key head, {key_heads} of them; got {r.dtype} of shape {tuple(r.shape)}.",
    )
    require(not r.requires_grad, "decay must not require a gradient: the sums have none for it. Pass decay.detach().")
    if has_values(r):
        require(bool(((r > 0) & (r <= 1)).all()), lambda: f"decay must have 0 < r ≤ 1; got {r.tolist()}.")
    return r
