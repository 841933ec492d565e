"""α, the angles by which one step in position rotates the features, and their scaling for longer contexts."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from lrpe.autograd import registered
from lrpe.errors import LrpeError, check_real, require
from lrpe.precision import LACK_FLOAT64, Precise, in_float64, keep, keep_exact


def geometric(count: int, dim: int, base: float = 10000.0) -> Tensor:
    """α_k = base^(-2k / dim), RoPE's and the listing's kind a. Type 2 takes count = dim/2, Type 1 count = dim."""
    require(base > 1, f"base must exceed 1, so that geometric angles decrease; got base={base}.")
    return base ** (-2 * torch.arange(count, dtype=torch.float64, device="cpu") / dim)


def linear(count: int, length: int) -> Tensor:
    """α_k = (π / 2·length) (k + 1) / count, the listing's kind b: the fastest makes a quarter turn over the length."""
    return _quarter_turn(length) * torch.arange(1, count + 1, dtype=torch.float64, device="cpu") / count


def harmonic(count: int, length: int) -> Tensor:
    """α_k = (π / 2·length) / (k + 1), the listing's kind c."""
    return _quarter_turn(length) / torch.arange(1, count + 1, dtype=torch.float64, device="cpu")


def constant(count: int, length: int) -> Tensor:
    """α_k = π / 2·length for every k, cosFormer's."""
    return torch.full((count,), _quarter_turn(length), dtype=torch.float64, device="cpu")


def half_turn(count: int) -> Tensor:
    """α_k = π for every k, Mamba-3's: a token-dependent step u with |u| ≤ 1 turns by at most half a turn."""
    return torch.full((count,), math.pi, dtype=torch.float64, device="cpu")


def whole_fractions(count: int) -> Tensor:
    """α_k = 2π / (k + 2), the half, the third, … of a turn: pair k is back where it was after k + 2 steps."""
    return 2 * math.pi / torch.arange(2, count + 2, dtype=torch.float64, device="cpu")


def high_frequency(count: int, length: int, dim: int | None = None, base: float = 10000.0) -> Tensor:
    """α_k = base^(-2k / dim) if that is at least 2π/length, else 0: HoPE's (Chen et al., 2024); dim = 2·count if None.

    An angle that makes no whole turn within the trained length would take unseen values beyond it.
    """
    alpha = geometric(count, dim or 2 * count, base)
    return torch.where(alpha < 4 * _quarter_turn(length), 0, alpha)


def keep_fastest(alpha: Tensor, share: float) -> Tensor:
    """Return α (count,) with all but the ``share`` of the largest angles set to 0, as p-RoPE does."""
    slowest = alpha.argsort(descending=True, stable=True)[math.ceil(share * len(alpha)) :]
    return alpha.index_fill(0, slowest, 0.0)


def _quarter_turn(length: int) -> float:
    require(length >= 1, f"length, the longest length, must be at least 1; got length={length}.")
    return math.pi / 2 / length


@dataclass(frozen=True)
class Scaling(ABC):
    """Ratios that scale the angles α_0, ..., α_{count-1} of a geometric series, and a scale of the scores."""

    factor: float

    def __post_init__(self):
        require(self.factor >= 1, f"factor must be at least 1; got factor={self.factor}.")

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
    """NTK-aware scaling: a larger base, which keeps the first α and divides the last by the factor."""

    def ratios(self, count: int, dim: int, base: float) -> Tensor:
        return self.factor ** (-torch.arange(count, dtype=torch.float64, device="cpu") / max(count - 1, 1))


@dataclass(frozen=True)
class YaRN(Scaling):
    """YaRN (Peng et al., 2023): fast angles, which turn often within the trained length, stay; slow ones interpolate.

    Its temperature is a scale of the scores, not of the rotation, so Λ stays unitary:
    ``score_scale`` is (0.1 ln f + 1)².
    """

    length: int
    fast: float = 32.0
    slow: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        require(self.length > 0, f"length, the trained length, must be at least 1; got length={self.length}.")
        require(
            self.fast > self.slow > 0,
            f"fast and slow must satisfy fast > slow > 0; got fast={self.fast}, slow={self.slow}.",
        )

    @property
    def score_scale(self) -> float:
        return (0.1 * math.log(max(self.factor, 1.0)) + 1) ** 2

    def ratios(self, count: int, dim: int, base: float) -> Tensor:
        def turning(turns: float) -> float:  # the k whose α_k = base^(-2k/dim) makes this number of turns
            return dim * math.log(self.length / (turns * 2 * math.pi)) / (2 * math.log(base))

        low, high = max(math.floor(turning(self.fast)), 0), min(math.ceil(turning(self.slow)), dim - 1)
        ramp = (torch.arange(count, dtype=torch.float64, device="cpu") - low) / max(high - low, 1e-3)
        return 1 + ramp.clamp(0, 1) * (1 / self.factor - 1)


SCALINGS: dict[str, type[Scaling]] = {"interpolation": Interpolation, "ntk": NTKAware, "yarn": YaRN}


class Angles(Precise):
    """s ↦ s·α in float64, for α of shape (count,), shared by all heads, or (heads, count).

    A fixed α is a buffer that stays float64 when the model is cast: rounded to float32, s·α would be wrong by 0.01 at
    position 10⁶. Loading keeps the values of the file, so an encoding saved with α in float32 still uses that α.

    A learned α is start · exp(log_alpha). The buffer ``start`` is the given α in float64, and the parameter
    ``log_alpha``, of the default dtype and at least float32, is log α relative to it: it begins at 0, so α begins
    exactly as given. Adam moves every parameter by about the same amount, hence every angle by about the same ratio; if
    it moved α itself, slow angles would be carried away within a few updates. An angle keeps its sign, and an angle of
    0 stays 0.

    A key may have a learned phase δ besides: a query at s turns by s·α, and a key by s·α + δ. The parameter ``delta``
    has the shape of α and starts at 0.

    Args:
        alpha: the angles.
        learned: whether α is learned.
        scaling: how α is scaled for longer contexts.
        dim: the width in the exponent of geometric angles, which scaling needs; 2·count if None.
        base: the base of geometric angles, which scaling needs.
        key_phase: whether keys have a learned phase δ.
    """

    axes: int = 1  # integers in a position
    start: Tensor = registered("_buffers")
    log_alpha: Tensor = registered("_parameters")

    def __init__(
        self,
        alpha: Tensor | list[float],
        learned: bool = False,
        scaling: Scaling | None = None,
        dim: int | None = None,
        base: float = 10000.0,
        key_phase: bool = False,
    ):
        super().__init__()
        alpha = alpha if isinstance(alpha, Tensor) else torch.tensor(alpha, dtype=torch.float64, device="cpu")
        require(alpha.ndim in (1, 2), f"alpha must have shape (count,) or (heads, count); got {tuple(alpha.shape)}.")
        require(alpha.is_floating_point(), f"alpha must be real; got {alpha.dtype}.")
        alpha = alpha.detach().clone()
        keep_exact(self, "start" if learned else "alpha", alpha)
        if learned:
            keep(self, "log_alpha", torch.zeros_like(alpha), learned)
        self.delta: Tensor | None
        self.register_parameter("delta", None)
        if key_phase:
            keep(self, "delta", torch.zeros_like(alpha), learned=True)
        self.scaling = scaling
        self.dim = dim or 2 * alpha.shape[-1]
        self.base = base

    def exact_place(self, device: torch.device) -> tuple[torch.device, torch.dtype]:
        """Keep a fixed α on the CPU if the device has no float64: angles are formed there anyway."""
        return torch.device("cpu") if device.type in LACK_FLOAT64 else device, torch.float64

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs):
        """Read a fixed α, or the learned α of an earlier version, into learned angles, and learned into fixed ones."""
        if self.learned and f"{prefix}alpha" in state_dict:
            start_from_alpha(state_dict, prefix)
        elif not self.learned and {f"{prefix}start", f"{prefix}log_alpha"} <= state_dict.keys():
            start, log_alpha = (state_dict.pop(f"{prefix}{name}") for name in ("start", "log_alpha"))
            state_dict[f"{prefix}alpha"] = _learned_alpha(start, log_alpha)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    @property
    def learned(self) -> bool:
        return "log_alpha" in self._parameters

    @property
    def alpha(self) -> Tensor:
        """α, (count,) or (heads, count). Learned angles compute it anew each time; to set them, write to ``start``."""
        if self.learned:
            return _learned_alpha(self.start, self.log_alpha)
        return cast(Tensor, nn.Module.__getattr__(self, "alpha"))  # the buffer, which this property hides

    @property
    def _shape(self) -> torch.Size:
        return (self.log_alpha if self.learned else self.alpha).shape

    @property
    def count(self) -> int:
        return self._shape[-1]

    @property
    def heads(self) -> int | None:
        return self._shape[0] if len(self._shape) == 2 else None

    @property
    def score_scale(self) -> float:
        return 1.0 if self.scaling is None else self.scaling.score_scale

    def scaled(self) -> Tensor:
        """Return α in float64, scaled if a scaling is set; (1 or heads, 1, count)."""
        alpha = in_float64(self.alpha)
        if self.scaling is not None:
            alpha = alpha * self.scaling.ratios(self.count, self.dim, self.base).to(alpha.device)
        return alpha.reshape(self.heads or 1, 1, self.count)

    def forward(self, positions: Tensor) -> Tensor:
        """Return s·α in float64; (batch, n) -> (batch, 1 or heads, n, count)."""
        alpha = self.scaled()
        return positions.to(alpha.device).unsqueeze(1).unsqueeze(-1) * alpha

    def at(self, *s: int) -> Tensor:
        """Return s·α at one position on the CPU; (1 or heads, count)."""
        return s[0] * self.scaled().to("cpu").squeeze(-2)

    def key_phase(self, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        """Return cos δ and sin δ, (1 or heads, 1, count), if keys have a phase."""
        if self.delta is None:
            return None
        delta = in_float64(self.delta).reshape(self.heads or 1, 1, self.count)
        return delta.cos().to(self.delta.device, dtype), delta.sin().to(self.delta.device, dtype)

    def at_phases(self, phases: Tensor) -> Tensor:
        """Return p·α in float64 for real phases p, the sums of token-dependent steps, which replace positions.

        Args:
            phases: (batch or 1, heads or 1, n), shared by all angles, or (batch or 1, heads or 1, n, count), in any
                floating dtype. Sum them in float64.

        Returns:
            The angles, (batch or 1, heads or 1, n, count), with gradients for the phases and for a learned α.
        """
        p, alpha = self.factors(phases)
        return p * alpha

    def factors(self, phases: Tensor) -> tuple[Tensor, Tensor]:
        """Return p and α in float64 that broadcast: (batch, heads, n, 1 or count) and (1 or heads, 1, count)."""
        check_real("phases", phases)
        shape = tuple(phases.shape)
        if len(shape) not in (3, 4) or shape[3:] not in ((), (self.count,)):
            raise LrpeError(
                "phases must have shape (batch or 1, heads or 1, n), or (batch or 1, heads or 1, n, count) with one "
                f"phase per angle, here count={self.count}; got {shape}."
            )
        if self.heads not in (None, 1) and shape[1] not in (1, self.heads):
            raise LrpeError(f"phases must have 1 head or α's {self.heads} heads in their second axis; got {shape}.")
        p, alpha = in_float64(phases), self.scaled()
        return (p if p.ndim == 4 else p.unsqueeze(-1)).to(alpha.device), alpha

    def extra_repr(self) -> str:
        shown = "" if self.scaling is None else f", scaling={self.scaling}"
        shown += "" if self.delta is None else ", key_phase=True"
        return f"{tuple(self._shape)}, learned={self.learned}{shown}"


class MixedAngles(Angles):
    """s ↦ α_k (û_k·s) for positions s on a grid: pair k turns by the vector α_k û_k times (row, column, ...).

    RoPE-Mixed (Heo et al., 2024), and with a learned P STRING (Schenck et al., 2025). An axial grid, whose pairs follow
    one axis each, has the unit vectors û_k = (1, 0) and (0, 1). If α is learned, so are the directions û.

    Args:
        alpha: the lengths α_k of the vectors, (count,) or (heads, count).
        directions: vectors along û_k, (axes, count) or (heads, axes, count).
        options: those of ``Angles``.
    """

    def __init__(self, alpha: Tensor, directions: Tensor, learned: bool = False, **options: Any):
        super().__init__(alpha, learned, **options)
        shape = (*self._shape[:-1], directions.shape[-2], self.count)
        require(
            tuple(directions.shape) == shape
            and (directions.device.type == "meta" or bool((directions.norm(dim=-2) > 0).all())),
            f"directions must have shape (axes, count), or (heads, axes, count) as alpha has heads, and no vector may "
            f"be 0; got {tuple(directions.shape)} for alpha of shape {tuple(self._shape)}.",
        )
        self.axes = directions.shape[-2]
        self.directions: Tensor
        directions = directions.detach().clone()
        if learned:
            keep(self, "directions", directions, learned)
        else:
            keep_exact(self, "directions", directions)

    def forward(self, positions: Tensor) -> Tensor:
        """Return α (û·s) in float64; (batch, n, axes) -> (batch, 1 or heads, n, count)."""
        alpha, along = self.scaled(), in_float64(self.directions).reshape(self.heads or 1, self.axes, self.count)
        along = (along / along.norm(dim=-2, keepdim=True)).to(alpha.device)
        return (positions.to(alpha.device, alpha.dtype).unsqueeze(1) @ along) * alpha

    def at(self, *s: int) -> Tensor:
        place = torch.tensor(s, device=self.directions.device).reshape(1, 1, self.axes)
        return self(place)[0, :, 0].to("cpu")


def _learned_alpha(start: Tensor, log_alpha: Tensor) -> Tensor:
    return in_float64(start) * in_float64(log_alpha).exp()


def start_from_alpha(tensors: dict[str, Tensor], place: str) -> None:
    """Replace the ``alpha`` of one module by start = α and log_alpha = 0, which are exactly the same angles."""
    alpha = tensors.pop(f"{place}alpha")
    tensors[f"{place}start"], tensors[f"{place}log_alpha"] = alpha, torch.zeros_like(alpha)


def places_of_alpha(stored: Iterable[str], wanted: Iterable[str], trunk: str = "") -> list[str]:
    """Return the prefixes of modules that have ``alpha`` among the stored names and ``log_alpha`` among the wanted.

    ``trunk`` is a prefix that either side may lack, as a file of a trunk without its head does.
    """
    learned = {name.removeprefix(trunk) for name in wanted}
    places = [name.removesuffix("alpha") for name in stored if name.endswith(".alpha")]
    return [place for place in places if f"{place.removeprefix(trunk)}log_alpha" in learned]
