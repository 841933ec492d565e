"""How α shrinks so that a model serves longer texts than it was trained on."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from lrpe.errors import require


@dataclass(frozen=True)
class Scaling(ABC):
    """Ratios by which the angles α_0, ..., α_{count-1} of a geometric series shrink, and what multiplies the scores."""

    factor: float

    def __post_init__(self):
        require(self.factor >= 1, f"A context is lengthened by a factor of 1 or more; got factor={self.factor}.")

    @property
    def score_scale(self) -> float:
        return 1.0

    @abstractmethod
    def ratios(self, count: int, dim: int, base: float) -> Tensor: ...


@dataclass(frozen=True)
class Interpolation(Scaling):
    """Position interpolation (Chen et al., 2023): every α is divided by the factor, as if positions were closer."""

    def ratios(self, count: int, dim: int, base: float) -> Tensor:
        return torch.full((count,), 1 / self.factor, dtype=torch.float64, device="cpu")


@dataclass(frozen=True)
class NTKAware(Scaling):
    """NTK-aware scaling: a larger base, such that the first α stays and the last is divided by the factor."""

    def ratios(self, count: int, dim: int, base: float) -> Tensor:
        return self.factor ** (-torch.arange(count, dtype=torch.float64, device="cpu") / max(count - 1, 1))


@dataclass(frozen=True)
class YaRN(Scaling):
    """YaRN (Peng et al., 2023): angles that turn often within the trained length stay, slow ones are interpolated.

    Its temperature is a scale of the scores, not of the rotation, so Λ stays unitary:
    ``score_scale`` is (0.1 ln f + 1)².
    """

    length: int
    fast: float = 32.0
    slow: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        require(self.length > 0, f"YaRN needs the trained length, 1 or more; got length={self.length}.")
        require(self.fast > self.slow > 0, f"YaRN needs fast > slow > 0 turns; got {self.fast}, {self.slow}.")

    @property
    def score_scale(self) -> float:
        return (0.1 * math.log(max(self.factor, 1.0)) + 1) ** 2

    def ratios(self, count: int, dim: int, base: float) -> Tensor:
        def turning(turns: float) -> float:  # the k whose α_k = base^(-2k/dim) makes so many turns within the length
            return dim * math.log(self.length / (turns * 2 * math.pi)) / (2 * math.log(base))

        low, high = max(math.floor(turning(self.fast)), 0), min(math.ceil(turning(self.slow)), dim - 1)
        ramp = (torch.arange(count, dtype=torch.float64, device="cpu") - low) / max(high - low, 1e-3)
        return 1 + ramp.clamp(0, 1) * (1 / self.factor - 1)


SCALINGS: dict[str, type[Scaling]] = {"interpolation": Interpolation, "ntk": NTKAware, "yarn": YaRN}
