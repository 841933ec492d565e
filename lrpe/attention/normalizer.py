"""What, if anything, divides the sum. It is a choice of its own for every encoding."""

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from lrpe.encodings.differentiable import Differentiable
from lrpe.errors import LrpeError, require, unknown_name


class Normalizer(nn.Module):
    """``delta`` says which features Δ is summed from: the encoded ones, the plain φ(q) and φ(k), or none."""

    delta: Literal["encoded", "plain", "none"]

    @abstractmethod
    def forward(self, numerator: Tensor, delta: Tensor) -> Tensor:
        """(batch, heads, n, value_dim) and Δ (batch, heads, n, 1 or 0) -> (batch, heads, n, value_dim)."""


class EncodedDelta(Normalizer):
    """The paper's Δ_t = Σ_s (M_t φ(q_t))·(M_s φ(k_s)): the weights of each query sum to 1.

    An encoding turns scores to either sign, so Δ can be near 0 or below it, and the output then has no bound. |Δ| is
    kept from falling under ``floor``, with its sign; that bounds the division, not the loss. See docs/choosing.md.
    """

    delta = "encoded"

    def __init__(self, floor: float = 1e-6):
        super().__init__()
        self.floor = floor

    def forward(self, numerator: Tensor, delta: Tensor) -> Tensor:
        return divide(numerator, delta, self.floor)


class PlainDelta(Normalizer):
    """RoFormer's Δ_t = Σ_s φ(q_t)·φ(k_s), of the features before they are encoded.

    With φ > 0 it is positive, and trains with fixed and with learned angles. The weights need not sum to 1, and the
    output may exceed the values where φ(q) and φ(k) are almost at right angles.
    """

    delta = "plain"

    def __init__(self, floor: float = 1e-6):
        super().__init__()
        self.floor = floor

    def forward(self, numerator: Tensor, delta: Tensor) -> Tensor:
        return divide(numerator, delta, self.floor)


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
        kinds = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
        if kind not in kinds:
            raise unknown_name("norm", kind, kinds)
        require(over in ("joined", "head"), f"An output norm is over the 'joined' heads or each 'head'; got {over!r}.")
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


def divide(numerator: Tensor, delta: Tensor, floor: float) -> Tensor:
    """numerator / Δ; |Δ| is floored with its sign, and a query that saw nothing (Δ = 0) gives 0 with no gradient."""
    return Division.of(numerator, delta, floor)


def inverse(delta: Tensor, floor: float) -> Tensor:
    """sign Δ / max(|Δ|, floor), which is 0 for Δ = 0."""
    return delta.sign() / delta.abs().clamp(min=floor)


class Division(Differentiable):
    """y = x/Δ row by row, and its gradients dx = g/Δ, dΔ = -dx·y; where Δ is floored it has none."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, delta: Tensor, floor: float) -> Tensor:
        return x * inverse(delta, floor).to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(inputs[1], output)
        ctx.floor = inputs[2]

    @staticmethod
    def backward(ctx, *grads: Tensor):
        delta, y = ctx.saved_tensors
        dx = grads[0] * inverse(delta, ctx.floor).to(y.dtype)
        slope = -(dx * y).sum(-1, keepdim=True).to(delta.dtype)
        return dx, torch.where(delta.abs() < ctx.floor, 0, slope), None


NORMALIZERS: tuple[str, ...] = ("plain", "encoded", "output", "output-rms", "output-head", "output-rms-head")


def choose_normalizer(choice: str | Normalizer, heads: int, value_dim: int) -> Normalizer:
    """A normaliser by name, or the module itself."""
    if isinstance(choice, Normalizer):
        return choice
    if not isinstance(choice, str):
        raise LrpeError(f"A normaliser is a name or a Normalizer; got {type(choice).__name__}.")
    if choice not in NORMALIZERS:
        raise unknown_name("normaliser", choice, NORMALIZERS)
    if choice in ("plain", "encoded"):
        return PlainDelta() if choice == "plain" else EncodedDelta()
    kind = "rms" if "rms" in choice else "layer"
    return OutputNorm(heads, value_dim, kind, "head" if choice.endswith("head") else "joined")
