"""Token-dependent steps: token τ turns by u_τ·α, so that the phase p_t = Σ_{τ ≤ t} u_τ replaces the position t."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lrpe.arguments import check_count, check_real, check_tensor
from lrpe.attention.tokens import Tokens
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.errors import require
from lrpe.precision import Precise, compute_dtype, in_float64, keep, without_autocast


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
        dtype = compute_dtype(x.dtype)
        with without_autocast(x):
            u = 1 + F.linear(x.to(dtype), self.weight.to(dtype))
        return u.mT if self.angles is None else u.unflatten(-1, (self.key_heads, self.angles)).transpose(1, 2)

    def zero_phase(self, batch: int) -> Tensor:
        """Return the phase before the first token, (batch, key heads, 1 or angles)."""
        zero = torch.zeros(batch, self.key_heads, self.angles or 1, device=self.weight.device)
        return in_float64(zero)

    def extra_repr(self) -> str:
        return f"key_heads={self.key_heads}" + ("" if self.angles is None else f", angles={self.angles}")


def choose_steps(encoding: PositionalEncoding, width: int, key_heads: int) -> Steps | None:
    """Return the steps that an encoding takes from the tokens, or None if its steps are fixed."""
    if encoding.steps == "fixed":
        return None
    return Steps(width, key_heads, encoding.angle_count if encoding.steps == "angle" else None)


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


def phases(steps: Tensor, tokens: Tokens, before: Tensor | None) -> Tensor:
    """Return p_t = p + Σ_{τ ≤ t} u_τ in float64, in the shape of the steps; ``before`` is the phase p of a state.

    A step over several positions counts several times, and padding takes no step. Packed sequences need no new start:
    only differences of phases within a sequence count.
    """
    u, distances = in_float64(steps), tokens.distances()
    if distances is not None:
        u = u * distances.view(distances.shape[0], 1, -1, *(1,) * (u.ndim - 3)).to(u.device)
    p = u.cumsum(2)
    if before is None:
        return p
    return p + (before if p.ndim == 3 else before.unsqueeze(2)).to(p.device)


def last_phase(p: Tensor, batch: int, key_heads: int) -> Tensor:
    """Return the phase after the last token, (batch, key heads, 1 or angles); 0 if there is no token."""
    if p.shape[2] == 0:
        return p.new_zeros(batch, key_heads, _phase_width(p))
    last = p[:, :, -1] if p.ndim == 4 else p[:, :, -1:]
    return last.expand(batch, key_heads, -1)


def check_phase(phase: Any, steps: Tensor | None, k: Tensor) -> None:
    """Check the phase of a state before tokens with these steps and keys k (batch, key heads, n, d)."""
    require(
        (phase is None) == (steps is None),
        "state must have a phase if, and only if, the steps depend on the tokens. Make it with the same layer.",
    )
    if steps is None:
        return
    check_real("state.phase", phase)
    shape = (*k.shape[:2], _phase_width(steps))
    require(
        tuple(phase.shape) == shape,
        lambda: f"state.phase must have shape (batch, key heads, 1 or angles) = {shape}; got {tuple(phase.shape)}.",
    )


def _phase_width(steps: Tensor) -> int:
    """Return the last size of a phase for steps or phases with or without an axis of angles."""
    return steps.shape[3] if steps.ndim == 4 else 1
