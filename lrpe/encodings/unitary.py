"""Proposition 3.3, Type 1: Λ^(s) = diag(e^{isα_1}, ..., e^{isα_d}), in real arithmetic."""

import torch
from torch import Tensor

from lrpe.autograd import Differentiable
from lrpe.encodings.angles import Angles, geometric
from lrpe.encodings.phase import cos_sin
from lrpe.encodings.position_matrix import PositionMatrix, Table
from lrpe.errors import require


class Unitary(PositionMatrix):
    """Λ^(s) = diag(e^{isα_1}, ..., e^{isα_d}), represented as real features (re ‖ im) of width 2d.

    The real inner product of such features is the real part of the complex one, so the score of real y is
    Σ_k y_k y'_k cos((t-s) α_k).
    """

    is_complex = True

    def __init__(self, dim: int, angles: Angles | None = None):
        angles = angles or Angles(geometric(dim, dim), dim=dim)
        require(angles.count == dim, f"angles must have one α per dimension, dim={dim}; got {angles.count}.")
        super().__init__(dim, angles.heads)
        self.angles, self.axes, self.has_key_phase = angles, angles.axes, angles.delta is not None
        self.angle_count = angles.count if angles.axes == 1 else None

    @property
    def score_scale(self) -> float:
        return self.angles.score_scale

    def table(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Table:
        angle = self.angles(positions)
        return (torch.cat([angle.cos(), angle.sin()], -1).to(positions.device, dtype),)  # (..., n, 2d)

    def phase_table(self, phases: Tensor, dtype: torch.dtype = torch.float32) -> Table:
        return (cos_sin(self.angles, phases, dtype, axis=-2).flatten(-2),)

    def key_table(self, table: Table) -> Table:
        phase = self.angles.key_phase(table[0].dtype)
        return table if phase is None else (_multiply(table[0], *phase),)

    def transform(self, y: Tensor, table: Table) -> Tensor:
        (cos_sin,) = table
        if y.shape[-1] == self.dim:
            return _spread(y, cos_sin) if torch.compiler.is_compiling() else _Spread.of(y, cos_sin)
        return _multiply(y, *cos_sin.chunk(2, -1))

    @torch.no_grad()
    def dense(self, *s: int) -> Tensor:
        return self._dense_at(self.angles.at(*s))

    @torch.no_grad()
    def dense_key_phase(self) -> Tensor:
        delta = self.angles.delta
        if delta is None:
            return super().dense_key_phase()
        return self._dense_at(delta.double().cpu().reshape(-1, self.dim))

    def _dense_at(self, angle: Tensor) -> Tensor:
        """Return diag(e^{iθ}) for angles θ (1 or heads, dim)."""
        Lambda = torch.diag_embed(torch.polar(torch.ones_like(angle), angle))
        return Lambda[0] if self.heads is None else Lambda


def _multiply(y: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return (re + i im)(cos + i sin) as (re ‖ im), for y as (re ‖ im)."""
    re, im = y.chunk(2, -1)
    return torch.cat([re * cos - im * sin, re * sin + im * cos], -1)


def _spread(y: Tensor, cos_sin: Tensor) -> Tensor:
    """Return (y cos ‖ y sin) by one product."""
    return (y.unsqueeze(-2) * cos_sin.unflatten(-1, (2, -1))).flatten(-2)


class _Spread(Differentiable):
    """``_spread`` with its gradient g_re cos + g_im sin, computed without a temporary of width 2d."""

    generate_vmap_rule = True

    @staticmethod
    def forward(y: Tensor, cos_sin: Tensor) -> Tensor:
        return _spread(y, cos_sin)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        y, cos_sin = ctx.saved_tensors
        (g_re, g_im), (cos, sin) = grads[0].chunk(2, -1), cos_sin.chunk(2, -1)
        dy = torch.addcmul(g_re * cos, g_im, sin) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return dy, None
        if cos_sin.shape == grads[0].shape:  # a step per token and head: nothing to sum, so no halves to join
            return dy, _spread(y, grads[0])
        return dy, torch.cat([_sum_of_products(g, y, cos.shape) for g in (g_re, g_im)], -1)


def _sum_of_products(a: Tensor, b: Tensor, shape: torch.Size) -> Tensor:
    """Return Σ a b over the axes in which ``shape`` has 1: batch and heads, if all share a table."""
    if any(size != 1 for size in shape[:-2]):
        return (a * b).sum_to_size(shape)
    # One (n, d) slice at a time: a * b for the whole batch would be as large as the gradient itself.
    total = torch.zeros(shape[-2:], dtype=a.dtype, device=a.device)
    for x, y in zip(_stacked(a), _stacked(b), strict=True):
        total = torch.addcmul(total, x, y)
    return total.reshape(shape)


def _stacked(x: Tensor) -> Tensor:
    """Flatten (..., n, d) to (N, n, d)."""
    return x.flatten(0, -3) if x.ndim > 2 else x[None]
