"""Normalisers of the sum: a division by Δ, or a norm of the output. Any one combines with any encoding."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from lrpe.autograd import Differentiable
from lrpe.errors import LrpeError, check_count, is_number, require, unknown_name


class Features:
    """φ and the encoding of x, each computed when it is first read: few normalisers need both.

    ``encoded`` is called with the features themselves. A function that held them would close a circle of references,
    and their memory would be free only after the next garbage collection.
    """

    def __init__(self, plain: Callable[[], Tensor], encoded: Callable[["Features"], Tensor]):
        self._compute_plain, self._compute_encoded = plain, encoded
        self._plain: Tensor | None = None
        self._encoded: Tensor | None = None

    @property
    def plain(self) -> Tensor:
        """φ(x), (batch, heads, n, φ's width)."""
        if self._plain is None:  # not functools.cached_property, whose lock a compiler cannot trace
            self._plain = self._compute_plain()
        return self._plain

    @property
    def encoded(self) -> Tensor:
        """M φ(x), or φ(M x) if the encoding acts before φ; (batch, heads, n, feature_dim)."""
        if self._encoded is None:
            self._encoded = self._compute_encoded(self)
        return self._encoded

    def map(self, change: Callable[[Tensor], Tensor]) -> "Features":
        """Return the changed features. If the two are one tensor, as without an encoding, they stay one."""

        def encoded(changed: Features) -> Tensor:
            before = self.encoded
            return changed.plain if before is self._plain else change(before)

        return Features(lambda: change(self.plain), encoded)


class Normalizer(nn.Module, ABC):
    """Base class: it chooses the features whose products Δ sums, and divides the sums by Δ."""

    @abstractmethod
    def delta_features(self, features: Features) -> Tensor | None:
        """Return the features of queries or of keys that Δ is summed from, or None if there is no Δ."""

    def forward(self, numerator: Tensor, delta: Tensor | None) -> Tensor:
        """Normalise the sums (batch, heads, n, value_dim), given Δ (batch, heads, n, 1) if there is one."""
        assert delta is not None
        return divide_by_delta(numerator, delta)


class EncodedDelta(Normalizer):
    """The paper's Δ_t = Σ_s (M_t φ(q_t))·(M_s φ(k_s)): the weights of each query sum to 1.

    Encoded scores can be negative, so Δ can be near or below 0, and then the output is unbounded. See
    docs/choosing.md.
    """

    def delta_features(self, features: Features) -> Tensor:
        return features.encoded


class ClampedDelta(EncodedDelta):
    """The same Δ, clamped to at least ``least``, as the paper's authors ran RoPE, PER and SPE.

    A negative Δ becomes a small positive one, so the output is large and has the opposite sign. Use it only to repeat
    their runs: Δ scales with φ, so with small features every Δ may lie below ``least``.
    """

    def __init__(self, least: float = 1e-6):
        super().__init__()
        require(
            is_number(least) and 0 < least < math.inf, lambda: f"least must be a number above 0; got least={least!r}."
        )
        self.least = least

    def forward(self, numerator: Tensor, delta: Tensor | None) -> Tensor:
        assert delta is not None
        return divide_by_delta(numerator, delta.clamp(min=self.least))


class PlainDelta(Normalizer):
    """RoFormer's Δ_t = Σ_s φ(q_t)·φ(k_s), of the features before encoding.

    With φ > 0 it is positive, and trains with fixed and with learned angles. The weights need not sum to 1, and the
    output may exceed the values where φ(q) and φ(k) are nearly orthogonal. Nothing cancels in a sum of nonnegative
    terms, so Δ is accurate for features of any size and needs no lower bound.
    """

    def delta_features(self, features: Features) -> Tensor:
        return features.plain


class OutputNorm(Normalizer):
    """LayerNorm or RMSNorm of the sums, over the joined heads or per head, without Δ, as the paper's authors ran it.

    It bounds the output for scores of either sign, but discards the total weight of each query.
    """

    def __init__(
        self,
        heads: int,
        value_dim: int,
        kind: Literal["layer", "rms"] = "layer",
        over: Literal["joined", "head"] = "joined",
    ):
        super().__init__()
        check_count("heads", heads)
        check_count("value_dim", value_dim)
        kinds = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
        if not isinstance(kind, str) or kind not in kinds:
            raise unknown_name("norm", kind, kinds)
        known = isinstance(over, str) and over in ("joined", "head")
        require(known, lambda: f"over must be 'joined' (all heads) or 'head' (each head); got over={over!r}.")
        self.over = over
        self.norm = kinds[kind](heads * value_dim if over == "joined" else value_dim, eps=1e-5)

    def delta_features(self, features: Features) -> None:
        return None

    def forward(self, numerator: Tensor, delta: Tensor | None) -> Tensor:
        if self.over == "head":
            return self.normalize(numerator)
        joined = numerator.transpose(1, 2)
        return self.normalize(joined.flatten(2)).view(joined.shape).transpose(1, 2)

    def normalize(self, x: Tensor) -> Tensor:
        """Apply the norm in the dtype of x, which is that of the sums and may differ from the weights'."""
        norm, weight = self.norm, self.norm.weight.to(x)
        if isinstance(norm, nn.RMSNorm):
            return nn.functional.rms_norm(x, norm.normalized_shape, weight, norm.eps)
        return nn.functional.layer_norm(x, list(norm.normalized_shape), weight, norm.bias.to(x), norm.eps)


def divide_by_delta(numerator: Tensor, delta: Tensor) -> Tensor:
    """Return numerator / Δ, and 0 without a gradient for a query that sees no key (Δ = 0)."""
    return _Division.of(numerator, delta)


def _inverse(delta: Tensor) -> Tensor:
    """Return 1 / Δ, and 0 for Δ = 0.

    |Δ| is bounded only by the least number with a finite inverse. A larger bound would set a scale: if φ is scaled by
    c, both sums scale by c², and the quotient must not change.
    """
    return delta.sign() / delta.abs().clamp(min=_least_normal(delta))


def _least_normal(delta: Tensor) -> float:
    return torch.finfo(delta.dtype).tiny


class _Division(Differentiable):
    """y = x/Δ per row, with gradients dx = g/Δ and dΔ = -dx·y, which is 0 where 1/Δ would not be finite."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, delta: Tensor) -> Tensor:
        return x * _inverse(delta).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        delta, y = ctx.saved_tensors
        dx = grads[0] * _inverse(delta).to(y.dtype)
        slope = -(dx * y).sum(-1, keepdim=True).to(delta.dtype)
        return dx, torch.where(delta.abs() < _least_normal(delta), 0, slope)


_DELTAS: dict[str, Callable[[], Normalizer]] = {"plain": PlainDelta, "encoded": EncodedDelta, "clamped": ClampedDelta}
NORMALIZERS: tuple[str, ...] = (*_DELTAS, "output", "output-rms", "output-head", "output-rms-head")


def choose_normalizer(choice: str | Normalizer, heads: int, value_dim: int) -> Normalizer:
    """Return a normaliser by name, or the given module."""
    if isinstance(choice, Normalizer):
        return choice
    if not isinstance(choice, str):
        raise LrpeError(f"normalizer must be a name or a Normalizer; got {type(choice).__name__}.")
    if choice not in NORMALIZERS:
        raise unknown_name("normaliser", choice, NORMALIZERS)
    if choice in _DELTAS:
        return _DELTAS[choice]()
    kind = "rms" if "rms" in choice else "layer"
    return OutputNorm(heads, value_dim, kind, "head" if choice.endswith("head") else "joined")
