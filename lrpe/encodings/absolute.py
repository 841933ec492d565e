"""Absolute positions, which are added to token embeddings: in the baseline, and in all of the authors' runs."""

import torch
from torch import Tensor, nn

from lrpe.encodings.angles import geometric
from lrpe.errors import require
from lrpe.positions import batched
from lrpe.precision import in_float64


class SinusoidalPositions(nn.Module):
    """p_s[2k] = sin(s α_k), p_s[2k+1] = cos(s α_k), with α_k = 10000^(-2k/width) (Vaswani et al., 2017)."""

    def __init__(self, width: int, base: float = 10000.0):
        super().__init__()
        require(
            width >= 2 and width % 2 == 0,
            f"width must be a positive even number, as sines and cosines come in pairs; got width={width}.",
        )
        self.width, self.base = width, base

    def forward(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """(batch, n) or (n,) integers -> (batch or 1, n, width)."""
        s = in_float64(batched(positions))
        angle = s[..., None] * in_float64(geometric(self.width // 2, self.width, self.base).to(s.device))
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2).to(positions.device, dtype)


class LearnedPositions(nn.Module):
    """p_s is a learned vector for each position 0, ..., length - 1."""

    def __init__(self, length: int, width: int):
        super().__init__()
        require(length >= 1 and width >= 1, f"length and width must be at least 1; got length={length}, width={width}.")
        self.embedding = nn.Embedding(length, width)

    def forward(self, positions: Tensor) -> Tensor:
        """(batch, n) or (n,) integers -> (batch or 1, n, width)."""
        s = batched(positions)
        length = self.embedding.num_embeddings
        if not torch.compiler.is_compiling() and s.numel() > 0:
            low, high = int(s.min()), int(s.max())
            require(
                low >= 0 and high < length,
                f"positions must be from 0 to {length - 1}; got positions from {low} to {high}. "
                "Increase length, or use an encoding without a longest position.",
            )
        return self.embedding(s)
