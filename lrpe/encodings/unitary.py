"""Proposition 3.3, Type 1: Λ^(s) = diag(e^{isα_1}, ..., e^{isα_d}), in real arithmetic."""

import torch
from torch import Tensor

from lrpe.encodings.angles import Angles, geometric
from lrpe.encodings.position_matrix import PositionMatrix, Table
from lrpe.errors import require


class Unitary(PositionMatrix):
    """Λ^(s) = diag(e^{isα_1}, ..., e^{isα_d}), carried as real features (re ‖ im) of width 2d.

    The real inner product of such features is the real part of the complex one, so the score of real y is
    Σ_k y_k y'_k cos((t-s) α_k).
    """

    is_complex = True

    def __init__(self, dim: int, angles: Angles | None = None):
        angles = angles or Angles(geometric(dim, dim), dim=dim)
        require(angles.count == dim, f"Unitary turns each dimension, so α has dim={dim} angles; got {angles.count}.")
        super().__init__(dim, angles.heads)
        self.angles = angles

    def table(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Table:
        angle = self.angles(positions)
        return (torch.cat([angle.cos(), angle.sin()], -1).to(positions.device, dtype),)  # (..., n, 2d)

    def transform(self, y: Tensor, table: Table) -> Tensor:
        (cos_sin,) = table
        if y.shape[-1] == self.dim:
            return (y.unsqueeze(-2) * cos_sin.unflatten(-1, (2, self.dim))).flatten(-2)
        (re, im), (cos, sin) = y.chunk(2, -1), cos_sin.chunk(2, -1)
        return torch.cat([re * cos - im * sin, re * sin + im * cos], -1)

    @torch.no_grad()
    def dense(self, *s: int) -> Tensor:
        angle = s[0] * self.angles.scaled().to("cpu").squeeze(-2)
        Lambda = torch.diag_embed(torch.polar(torch.ones_like(angle), angle))
        return Lambda[0] if self.heads is None else Lambda
