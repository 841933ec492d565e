"""The precision of the forward pass, and the scale of the loss that half precision needs."""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch

from lrpe.errors import require

PrecisionKind = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class LossScale:
    """What the loss is multiplied by, and for how many updates no gradient has overflowed."""

    scale: float = 1.0
    held: int = 0


class Precision:
    """Autocast to a kind of number. The loss is multiplied by ``scale``, and the gradient divided by it.

    float16 ends at 65504 and at 6e-8, so that its scale is searched for: it is halved where a gradient overflows, whose
    update is then left out, and doubled after ``PATIENCE`` updates without one. It starts as low as fairseq's, for our
    loss too is a sum over tokens and not their mean. For the other kinds it is 1.
    """

    START, PATIENCE = 2.0**7, 2000

    def __init__(self, kind: PrecisionKind, device: torch.device):
        self.dtype, self.device = getattr(torch, kind), device
        self.searches = kind == "float16"
        self.scale, self.held = self.START if self.searches else 1.0, 0

    def autocast(self) -> AbstractContextManager:
        return nullcontext() if self.dtype == torch.float32 else torch.autocast(self.device.type, self.dtype)

    def accept(self, norm: float) -> bool:
        """Whether an update with a gradient of this norm is made; the scale is then that of the next update."""
        if not self.searches:
            return True
        fits = math.isfinite(norm)
        self.held = self.held + 1 if fits else 0
        if not fits:
            self.scale /= 2
        elif self.held % self.PATIENCE == 0:
            self.scale *= 2
        require(self.scale >= 2**-14, "A gradient overflows float16 however it is scaled. Use bfloat16 or float32.")
        return fits

    def state(self) -> LossScale:
        return LossScale(self.scale, self.held)

    def restore(self, state: LossScale) -> None:
        self.scale, self.held = state.scale, state.held
