"""Proposition 3.4, Type 2: Λ^(s) rotates pairs of features and keeps or alternates the others."""

import math

import torch
from torch import Tensor

from lrpe.autograd import Differentiable, differentiating_forward, one_at_a_time, registered
from lrpe.encodings.angles import Angles, geometric
from lrpe.encodings.phase import cos_sin
from lrpe.encodings.position_matrix import PositionMatrix, Table
from lrpe.errors import require
from lrpe.precision import LACK_FLOAT64


class Orthogonal(PositionMatrix):
    """Λ^(s) = block-diag(R(sα_1), ..., R(sα_p), I_q, (-1)^s I_r) with R(θ) the rotation by θ and 2p + q + r = d.

    Pairs are neighbours: (0, 1), (2, 3), ... The alternating part holds the eigenvalue -1, which the paper's proof
    leaves out because it takes C^(s) = -I for every s; C^(s) = (-1)^s I obeys the law. An odd d has q ≥ 1 or r ≥ 1.
    """

    angles: Angles = registered("_modules")

    def __init__(self, dim: int, angles: Angles | None = None, alternating: int = 0):
        free = max(dim - alternating, 0)
        angles = angles or Angles(geometric(free // 2, 2 * (free // 2)))
        super().__init__(dim, angles.heads)
        self.pairs = angles.count
        self.alternating = alternating
        require(alternating >= 0, f"alternating must be at least 0; got alternating={alternating}.")
        require(
            2 * self.pairs + alternating <= dim,
            f"2·pairs + alternating must be at most dim; got pairs={self.pairs}, alternating={alternating}, dim={dim}.",
        )
        require(
            alternating == 0 or angles.axes == 1,
            f"alternating must be 0 for mixed angles; got alternating={alternating}, axes={angles.axes}.",
        )
        self.angles, self.axes, self.has_key_phase = angles, angles.axes, angles.delta is not None
        self.angle_count = angles.count if angles.axes == 1 else None

    @property
    def score_scale(self) -> float:
        return self.angles.score_scale

    def table(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Table:
        angle = self.angles(positions)
        turn = torch.stack([angle.cos(), angle.sin()], -1).flatten(-2).to(positions.device, dtype)  # (..., n, 2p)
        if self.alternating == 0:
            return (turn,)
        sign = (1 - 2 * (positions % 2)).to(dtype)[:, None, :, None]  # (-1)^s by parity, exact for any s
        return turn, sign

    def phase_table(self, phases: Tensor, dtype: torch.dtype = torch.float32) -> Table:
        if self.alternating:  # (-1)^p has no real value at a real p
            return super().phase_table(phases, dtype)
        return (cos_sin(self.angles, phases, dtype, axis=-1).flatten(-2),)

    def key_table(self, table: Table) -> Table:
        turn, *signs = table
        phase = self.angles.key_phase(turn.dtype)
        if phase is None:
            return table
        return _rotate_in_reals(turn, torch.stack(phase, -1).flatten(-2)), *signs

    def transform(self, y: Tensor, table: Table) -> Tensor:
        turn, *signs = table
        kept = self.dim - 2 * self.pairs - self.alternating
        if kept == self.dim:
            return y
        if 2 * self.pairs == self.dim:
            return _rotate(y, turn)
        pairs, same, flipped = y.split([2 * self.pairs, kept, self.alternating], -1)
        turned = _rotate(pairs, turn) if self.pairs else pairs
        return torch.cat([turned, same, *(flipped * sign for sign in signs)], -1)

    @torch.no_grad()
    def dense(self, *s: int) -> Tensor:
        return self._dense_at(self.angles.at(*s), (-1.0) ** (s[0] % 2))

    @torch.no_grad()
    def dense_key_phase(self) -> Tensor:
        delta = self.angles.delta
        if delta is None:
            return super().dense_key_phase()
        return self._dense_at(delta.double().cpu().reshape(-1, self.pairs), sign=1.0)

    def _dense_at(self, angle: Tensor, sign: float) -> Tensor:
        """Return rotations by angles (1 or heads, pairs), 1 on the fixed and ``sign`` on the alternating dimensions."""
        cos, sin = angle.cos(), angle.sin()
        blocks = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)  # (heads, p, 2, 2)
        kept = self.dim - 2 * self.pairs - self.alternating
        diagonal = [1.0] * kept + [sign] * self.alternating
        rest = torch.tensor(diagonal, dtype=torch.float64, device="cpu")
        Lambda = torch.stack([torch.block_diag(*turns, torch.diag(rest)) for turns in blocks]).to(torch.complex128)
        return Lambda[0] if self.heads is None else Lambda

    def extra_repr(self) -> str:
        return f"dim={self.dim}, pairs={self.pairs}, alternating={self.alternating}"


def _rotate(y: Tensor, turn: Tensor) -> Tensor:
    """Return (y_0 + i y_1) e^{isα} for each pair; ``turn`` holds (cos, sin), interleaved like y.

    In eager mode it is one complex product, as fast as a copy. Compilers, transforms of torch.func, forward-mode
    derivatives and devices without complex numbers get the same product in real arithmetic.
    """
    plain = one_at_a_time(y, turn) and not differentiating_forward()
    return _Rotate.of(y, turn) if plain and y.device.type not in LACK_FLOAT64 else _rotate_in_reals(y, turn)


class _Rotate(Differentiable):
    """z = y u for complex y and u, whose gradients g ū and g ȳ are such products too.

    Autograd's own gradient views g as complex in place, and fails if g has an odd storage offset; ``_rotate`` copies
    such a g first.
    """

    @staticmethod
    def forward(y: Tensor, turn: Tensor) -> Tensor:
        return _as_real(_read_as_complex(y) * _read_as_complex(turn))

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        y, turn = inputs
        ctx.save_for_backward(y if ctx.needs_input_grad[1] else None, turn)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (g,) = grads
        y, turn = ctx.saved_tensors
        dy = _rotate_back(g, turn) if ctx.needs_input_grad[0] else None
        return dy, None if y is None else _rotate_back(g, y).sum_to_size(turn.shape)


def _rotate_back(y: Tensor, turn: Tensor) -> Tensor:
    """Return (y_0 + i y_1) e^{-isα}: ``_rotate`` by the conjugate of ``turn``."""
    if torch.is_grad_enabled() or not one_at_a_time(y, turn):  # a reading as complex would cut off the gradient
        return _rotate(y, _conjugate(turn))
    # conj() would be lazy, and the product would copy it first; a copy of y's size can hold the product
    z, conjugate = _read_as_complex(y), _read_as_complex(turn).conj_physical()
    return _as_real(conjugate.mul_(z) if conjugate.shape == z.shape else conjugate * z)


def _conjugate(pairs: Tensor) -> Tensor:
    """Return (re, -im) for interleaved (re, im)."""
    return (pairs.unflatten(-1, (-1, 2)) * pairs.new_tensor([1.0, -1.0])).flatten(-2)


def _rotate_in_reals(y: Tensor, turn: Tensor) -> Tensor:
    """Return y cos + (-y_1, y_0) sin.

    The halves are not computed separately: inductor (torch 2.13) would save them for the gradient with the strides of
    the current length, and fail at the next length.
    """
    pairs, turns = (x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2) for x in (y, turn))
    swapped = (pairs.flip(-1) * torch.tensor([-1.0, 1.0], dtype=y.dtype, device=y.device)).reshape(y.shape)
    cos, sin = (turns[..., i : i + 1].expand_as(turns).flatten(-2) for i in (0, 1))
    return y * cos + swapped * sin


def _as_real(z: Tensor) -> Tensor:
    """View (..., p) complex numbers as (..., 2p) real ones."""
    if z.numel() == 0:  # view(dtype) refuses strides of 0, which empty tensors can have
        return torch.view_as_real(z).flatten(-2)
    return z.view(z.dtype.to_real())


def _read_as_complex(x: Tensor) -> Tensor:
    """Return (..., 2p) real numbers as (..., p) complex ones, as a view if the memory layout allows it."""
    return _in_whole_pairs(x).view(x.dtype.to_complex())


def _in_whole_pairs(x: Tensor) -> Tensor:
    """Return x, or a copy if its strides or offset are not even (as with an odd d)."""
    whole = x.stride(-1) == 1 and math.gcd(x.storage_offset(), *x.stride()[:-1]) % 2 == 0
    return x if whole else x.clone(memory_format=torch.contiguous_format)
