"""The steps from token to token: u_τ per token, the phase that they sum to, and what else attention knows of the order.

With token-dependent steps, token τ turns by u_τ·α, so that the phase p_t = Σ_{τ ≤ t} u_τ replaces the position t.
"""

from typing import Any, Generic, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lrpe.arguments import check_count, check_real, check_tensor
from lrpe.attention.decay import spread_decay
from lrpe.attention.tokens import Tokens, positions_of
from lrpe.encodings.encoding import STEP_RULES, PositionalEncoding
from lrpe.errors import require
from lrpe.precision import Precise, compute_dtype, in_float64, keep, without_autocast

State = TypeVar("State")
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


def _phases(steps: Tensor, tokens: Tokens, before: Tensor | None) -> Tensor:
    """Return p_t = p + Σ_{τ ≤ t} u_τ in float64, in the shape of the steps; ``before`` is the phase p of a state.

    A step over several positions counts several times, and padding takes no step. Packed sequences need no new start:
    only differences of phases within a sequence count.
    """
    u, distances = in_float64(steps), tokens.distances()
    if distances is not None:
        u = u * distances.view(distances.shape[0], 1, -1, *(1,) * (u.ndim - 3)).to(u.device)
    p = u.cumsum(2)
    if tokens.part is not None:  # before the features, so that it cannot be sent along with the sums of these
        return p + tokens.part.gather(u.sum(2, keepdim=True))[: tokens.part.rank].sum(0)
    if before is None:
        return p
    return p + (before if p.ndim == 3 else before.unsqueeze(2)).to(p.device)


def last_phase(p: Tensor, batch: int, key_heads: int) -> Tensor:
    """Return the phase after the last token, (batch, key heads, 1 or angles); 0 if there is no token."""
    if p.shape[2] == 0:
        return p.new_zeros(batch, key_heads, _phase_width(p))
    last = p[:, :, -1] if p.ndim == 4 else p[:, :, -1:]
    return last.expand(batch, key_heads, -1)


def _check_phase(phase: Any, steps: Tensor | None, k: Tensor) -> None:
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


class Order(NamedTuple, Generic[State]):
    """The tokens of queries and keys, the decay and the step that each brings, and the state before the first."""

    tokens: Tokens
    keys: Tokens  # the same object in self-attention
    log_decay: Tensor | None = None  # log r of one step: (1, key heads, 1), or (batch, key heads, n) per token
    steps: Tensor | None = None  # (batch or 1, key heads or 1, n), and a last axis of angles if each has its own
    state: State | None = None


def phases_of(order: Order, k: Tensor) -> Tensor | None:
    """Return the phase of each token, continuing that of the state, or None if the steps are fixed."""
    before = None
    if order.state is not None:
        before = order.state.phase
        _check_phase(before, order.steps, k)
    return None if order.steps is None else _phases(order.steps, order.tokens, before)


def make_tables(
    encoding: PositionalEncoding, order: Order, phase: Tensor | None, q: Tensor, k: Tensor
) -> tuple[Any, Any]:
    """Return the encoding's tables for queries and keys, which are the same object in self-attention."""
    if phase is not None:
        table = encoding.phase_table(phase, q.dtype)
        return table, table
    tokens, keys, axes = order.tokens, order.keys, encoding.axes
    given = tokens.positions is not None and keys.positions is not None
    require(given or axes == 1, f"An encoding of {axes} axes needs positions; pass positions=lrpe.positions.grid(...).")
    if keys is tokens:
        table = encoding.table(positions_of(tokens, q), q.dtype)
        return table, table
    return encoding.tables(positions_of(tokens, q), positions_of(keys, k), q.dtype)


def check_cross_attention(causal: bool, order: Order) -> None:
    """Check that cross-attention, which has no order of queries and keys, is not causal and counts no steps."""
    if order.keys is order.tokens:
        return
    require(
        not causal,
        "Cross-attention has no order of queries and keys, so its sum is bidirectional. Pass "
        'summation="bidirectional".',
    )
    require(
        order.log_decay is None,
        "A decay counts steps between tokens of one sequence; cross-attention has none. Pass decay=None.",
    )
    require(
        order.steps is None,
        "Token-dependent steps lead from token to token of one sequence; cross-attention has none. Use an encoding of "
        "fixed steps.",
    )
