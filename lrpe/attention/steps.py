"""The steps from token to token: token τ turns by u_τ·α, with a u_τ that depends on the token."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lrpe.attention.decay import spread_decay
from lrpe.encodings.encoding import STEP_RULES, PositionalEncoding
from lrpe.errors import check_count, check_tensor, require
from lrpe.precision import Precise, compute_dtype, in_float64, keep, without_autocast

_LEAST_BIAS = -40.0  # of Δ = softplus(b), for a decay that float64 rounds to 1


class Steps(Precise):
    """u_t = 1 + W x_t: per key head, or per key head and angle. W starts at 0, so that all steps start at 1."""

    def __init__(self, width: int, key_heads: int, angles: int | None = None):
        super().__init__()
        check_count("width", width)
        check_count("key_heads", key_heads)
        if angles is not None:
            check_count("angles", angles)
        self.key_heads, self.angles = key_heads, angles
        self.weight: Tensor
        keep(self, "weight", torch.zeros(key_heads * (angles or 1), width), learned=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the steps of the tokens x (batch, n, width): (batch, key heads, n), and a last axis of angles."""
        u = 1 + self.project(x)
        return u.mT if self.angles is None else u.unflatten(-1, (self.key_heads, self.angles)).transpose(1, 2)

    def project(self, x: Tensor) -> Tensor:
        """Return W x, (batch, n, key heads · (1 or angles))."""
        dtype = compute_dtype(x.dtype)
        with without_autocast(x):
            return F.linear(x.to(dtype), self.weight.to(dtype))

    def zero_phase(self, batch: int) -> Tensor:
        """Return the phase before the first token, (batch, key heads, 1 or angles)."""
        zero = torch.zeros(batch, self.key_heads, self.angles or 1, device=self.weight.device)
        return in_float64(zero)

    def extra_repr(self) -> str:
        return f"key_heads={self.key_heads}" + ("" if self.angles is None else f", angles={self.angles}")


class SharedSteps(Steps):
    """u_t = tanh(W x_t) Δ_t per key head and angle, Mamba-3's, with Δ_t = softplus(V x_t + b) per key head.

    A decay may share Δ. W and V start at 0, and b so that Δ starts at -log r of the spread decay.
    """

    def __init__(self, width: int, key_heads: int, angles: int):
        super().__init__(width, key_heads, angles)
        self.delta_weight: Tensor
        self.delta_bias: Tensor
        keep(self, "delta_weight", torch.zeros(key_heads, width), learned=True)
        start = -torch.tensor(spread_decay(key_heads), dtype=torch.float64, device="cpu").log()
        keep(self, "delta_bias", start.expm1().log().clamp(min=_LEAST_BIAS), learned=True)

    def delta(self, x: Tensor) -> Tensor:
        """Return Δ of the tokens x (batch, n, width): (batch, n, key heads)."""
        dtype = compute_dtype(x.dtype)
        with without_autocast(x):
            return F.softplus(F.linear(x.to(dtype), self.delta_weight.to(dtype), self.delta_bias.to(dtype)))

    def forward(self, x: Tensor) -> Tensor:
        a = self.project(x).unflatten(-1, (self.key_heads, self.angles or 1))
        return (a.tanh() * self.delta(x).unsqueeze(-1)).transpose(1, 2)


class SwitchedSteps(Steps):
    """u_t = σ(W x_t) per key head and angle: a token turns an angle by all of α, or not at all, or in between.

    Both ends are where the sigmoid saturates, so that training comes as close to them as it needs. Errors of a step add
    up along the tokens: u_t = 1 + W x_t is exact nowhere, and loses count beyond the trained length. W starts at 0.
    """

    def forward(self, x: Tensor) -> Tensor:
        u = self.project(x).sigmoid()
        return u.unflatten(-1, (self.key_heads, self.angles or 1)).transpose(1, 2)


def choose_steps(encoding: PositionalEncoding, width: int, key_heads: int) -> Steps | None:
    """Return the steps that an encoding takes from the tokens, or None if its steps are fixed."""
    if encoding.steps == "fixed":
        return None
    if encoding.steps == "shared":
        assert encoding.angle_count is not None  # an Encoding checks it
        return SharedSteps(width, key_heads, encoding.angle_count)
    if encoding.steps == "switch":
        return SwitchedSteps(width, key_heads, encoding.angle_count)
    if encoding.steps in STEP_RULES:
        return _make_own(encoding, width, key_heads)
    return Steps(width, key_heads, encoding.angle_count if encoding.steps == "angle" else None)


def _make_own(encoding: PositionalEncoding, width: int, key_heads: int) -> Steps:
    """Return the steps of a registered rule."""
    assert encoding.angle_count is not None  # an Encoding checks it
    steps = STEP_RULES[encoding.steps](width, key_heads, encoding.angle_count)
    require(
        isinstance(steps, Steps) and steps.key_heads == key_heads and steps.angles in (None, encoding.angle_count),
        lambda: (
            f"The rule {encoding.steps!r} must return a Steps of {key_heads} key heads, with {encoding.angle_count} "
            f"angles or None; got {steps}."
        ),
    )
    return steps


def read_steps(steps: Any, encoding: PositionalEncoding, k: Tensor) -> Tensor:
    """Check steps (batch or 1, key heads or 1, n), or the same with a last axis of angles, for keys k."""
    check_tensor("steps", steps, k)
    batch, heads, n, _ = k.shape
    count = encoding.angle_count
    require(count is not None, f"steps need an encoding with angles, of Type 1 or 2; got {type(encoding).__name__}.")
    fits = steps.is_floating_point() and steps.ndim in (3, 4) and steps.shape[2] == n
    fits = fits and steps.shape[0] in (1, batch) and steps.shape[1] in (1, heads) and steps.shape[3:] in ((), (count,))
    require(
        fits,
        lambda: (
            f"steps must be real, of shape (batch or 1, key heads or 1, n) = ({batch}, {heads}, {n}), or with a last "
            f"axis of {count} angles; got {steps.dtype} of shape {tuple(steps.shape)}."
        ),
    )
    return steps
