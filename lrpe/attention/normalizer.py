"""What, if anything, divides the sum. It is a choice of its own for every encoding."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from lrpe.arguments import check_count, is_number
from lrpe.autograd import Differentiable
from lrpe.errors import LrpeError, require, unknown_name


class Normalizer(nn.Module):
    """``delta`` says which features Δ is summed from: the encoded ones, the plain φ(q) and φ(k), or none."""

    delta: Literal["encoded", "plain", "none"]

    @abstractmethod
    def forward(self, numerator: Tensor, delta: Tensor) -> Tensor:
        """(batch, heads, n, value_dim) and Δ (batch, heads, n, 1 or 0) -> (batch, heads, n, value_dim)."""


class EncodedDelta(Normalizer):
    """The paper's Δ_t = Σ_s (M_t φ(q_t))·(M_s φ(k_s)): the weights of each query sum to 1.

    An encoding turns scores to either sign, so Δ can be near 0 or below it, and the output then has no bound. See
    docs/choosing.md.
    """

    delta = "encoded"

    def forward(self, numerator: Tensor, delta: Tensor) -> Tensor:
        return _divide(numerator, delta)


class ClampedDelta(Normalizer):
    """The same Δ, with ``least`` in place of all that is less, as the paper's authors ran RoPE, PER and SPE.

    A negative Δ is then a small positive one, and so the output is large and has another sign. It is here to repeat
    their runs; ``least`` is a bound on a sum whose scale is that of φ, so with small features it changes everything.
    """

    delta = "encoded"

    def __init__(self, least: float = 1e-6):
        super().__init__()
        require(
            is_number(least) and 0 < least < math.inf, lambda: f"least must be a number above 0; got least={least!r}."
        )
        self.least = least

    def forward(self, numerator: Tensor, delta: Tensor) -> Tensor:
        return _divide(numerator, delta.clamp(min=self.least))


class PlainDelta(Normalizer):
    """RoFormer's Δ_t = Σ_s φ(q_t)·φ(k_s), of the features before they are encoded.

    With φ > 0 it is positive, and trains with fixed and with learned angles. The weights need not sum to 1, and the
    output may exceed the values where φ(q) and φ(k) are almost at right angles. Nothing cancels in a sum of what is not
    negative, so Δ is exact to its last digit however small the features are, and it is never floored.
    """

    delta = "plain"

    def forward(self, numerator: Tensor, delta: Tensor) -> Tensor:
        return _divide(numerator, delta)


class OutputNorm(Normalizer):
    """No Δ: LayerNorm or RMSNorm of the sums, over the joined heads or head by head. What the authors ran.

    It bounds the output whatever the scores' signs, and forgets how much weight a query found in all.
    """

    delta = "none"

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
        require(known, lambda: f"An output norm is over the 'joined' heads or each 'head'; got {over!r}.")
        self.over = over
        self.norm = kinds[kind](heads * value_dim if over == "joined" else value_dim, eps=1e-5)

    def forward(self, numerator: Tensor, delta: Tensor) -> Tensor:
        if self.over == "head":
            return self.normalize(numerator)
        joined = numerator.transpose(1, 2)
        return self.normalize(joined.flatten(2)).view(joined.shape).transpose(1, 2)

    def normalize(self, x: Tensor) -> Tensor:
        """The norm in x's dtype, which is that of the sums, whatever dtype the weights are kept in."""
        norm, weight = self.norm, self.norm.weight.to(x)
        if isinstance(norm, nn.RMSNorm):
            return nn.functional.rms_norm(x, norm.normalized_shape, weight, norm.eps)
        return nn.functional.layer_norm(x, list(norm.normalized_shape), weight, norm.bias.to(x), norm.eps)


def _divide(numerator: Tensor, delta: Tensor) -> Tensor:
    """numerator / Δ; a query that saw nothing (Δ = 0) gives 0 with no gradient."""
    return _Division.of(numerator, delta)


def _inverse(delta: Tensor) -> Tensor:
    """1 / Δ, and 0 for Δ = 0.

    The only bound on |Δ| is the least number that has a finite inverse. A larger one would be a scale of its own: with
    φ scaled by c every sum scales by c², and the quotient must not notice.
    """
    return delta.sign() / delta.abs().clamp(min=_least_normal(delta))


def _least_normal(delta: Tensor) -> float:
    return torch.finfo(delta.dtype).tiny


class _Division(Differentiable):
    """y = x/Δ row by row, and its gradients dx = g/Δ, dΔ = -dx·y; where Δ has no finite inverse it has none."""

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
    """A normaliser by name, or the module itself."""
    if isinstance(choice, Normalizer):
        return choice
    if not isinstance(choice, str):
        raise LrpeError(f"A normaliser is a name or a Normalizer; got {type(choice).__name__}.")
    if choice not in NORMALIZERS:
        raise unknown_name("normaliser", choice, NORMALIZERS)
    if choice in _DELTAS:
        return _DELTAS[choice]()
    kind = "rms" if "rms" in choice else "layer"
    return OutputNorm(heads, value_dim, kind, "head" if choice.endswith("head") else "joined")
