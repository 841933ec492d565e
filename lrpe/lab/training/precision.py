"""Mixed precision: autocast of the forward pass, and loss scaling for float16."""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch

from lrpe.errors import require

PrecisionKind = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class LossScale:
    """The factor of the loss, and the number of updates since a gradient last overflowed."""

    scale: float = 1.0
    held: int = 0


class Precision:
    """Autocast to a number format. The loss is multiplied by ``scale`` and the gradient divided by it.

    float16 ranges from 6e-8 to 65504, so its scale adapts: an overflow of the gradient skips the update and halves the
    scale; ``PATIENCE`` updates without one double it. It starts as low as fairseq's because our loss, too, is a sum
    over tokens and not their mean. The scale of other formats is 1.
    """

    START, PATIENCE = 2.0**7, 2000

    def __init__(self, kind: PrecisionKind, device: torch.device):
        self.dtype, self.device = getattr(torch, kind), device
        self.searches = kind == "float16"
        self.scale, self.held = self.START if self.searches else 1.0, 0

    def autocast(self) -> AbstractContextManager:
        return nullcontext() if self.dtype == torch.float32 else torch.autocast(self.device.type, self.dtype)

    def accept(self, norm: float) -> bool:
        """Return whether to make an update with this gradient norm, and adapt the scale for the next update."""
        if not self.searches:
            return True
        fits = math.isfinite(norm)
        self.held = self.held + 1 if fits else 0
        if not fits:
            self.scale /= 2
        elif self.held % self.PATIENCE == 0:
            self.scale *= 2
        require(self.scale >= 2**-14, "A gradient overflows float16 at every loss scale. Use bfloat16 or float32.")
        return fits

    def state(self) -> LossScale:
        return LossScale(self.scale, self.held)

    def restore(self, state: LossScale) -> None:
        self.scale, self.held = state.scale, state.held
