"""r, by how much a score fades with every step between query and key; one number a (key) head."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lrpe.encodings.encoding import PositionalEncoding
from lrpe.encodings.precision import Precise
from lrpe.errors import LrpeError, require


def spread_decay(heads: int) -> list[float]:
    """r_h = 1 - 2^-(2 + 1.5h): heads that forget within a few tokens beside heads that remember thousands."""
    return [1 - 2 ** -(2 + 1.5 * h) for h in range(heads)]


class Decay(Precise):
    """The decay of an attention: its own, or the one that its encoding brings, or none."""

    def __init__(self, r: Tensor | Sequence[float] | None, encoding: PositionalEncoding, key_heads: int):
        super().__init__()
        given = read_decay(r, encoding, key_heads)
        self.r: Tensor | None
        self.register_buffer("r", None if given is None else given.clone().float().to(torch.get_default_device()))


def read_decay(r: Tensor | Sequence[float] | None, encoding: PositionalEncoding, key_heads: int) -> Tensor | None:
    """The decay that is given, checked; or the encoding's."""
    if r is not None and encoding.decay is not None:
        raise LrpeError("This encoding brings its own decay; build it with decay=None to give another.")
    given = encoding.decay if r is None else torch.as_tensor(r, dtype=torch.float64)
    if given is None:
        return None
    require(
        given.shape == (key_heads,),
        lambda: f"A decay has one r a key head, {key_heads} of them; got shape {tuple(given.shape)}.",
    )
    require(not given.requires_grad, "A decay is fixed: the sums have no gradient for it. Pass decay.detach().")
    if given.device.type != "meta" and not torch.compiler.is_compiling():
        inside = bool(((given > 0) & (given <= 1)).all())
        require(inside, lambda: f"A decay fades, so 0 < r ≤ 1; got {given.tolist()}.")
    return given
