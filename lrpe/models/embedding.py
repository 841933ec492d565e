"""What goes into the trunk: tokens of a text or patches of an image, with absolute positions if there are any."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrpe.encodings.absolute import LearnedPositions, SinusoidalPositions
from lrpe.errors import require
from lrpe.models.configuration import LrpeConfig
from lrpe.positions import grid, sequence


class TokenPositions(nn.Module):
    """Absolute positions in a sequence, added to its embeddings.

    Sinusoids are about as large as 1, and embeddings begin far smaller: beside them they are multiplied by √width, as
    Vaswani et al. (2017) do, or else a model would see positions and hardly a token.
    """

    def __init__(self, config: LrpeConfig):
        super().__init__()
        if config.absolute_positions == "learned":
            self.table = LearnedPositions(config.max_position_embeddings, config.hidden_size)
        else:
            self.table = SinusoidalPositions(config.hidden_size)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """(batch, n, width) and (batch or 1, n) integers -> (batch, n, width)."""
        if isinstance(self.table, LearnedPositions):
            return x + self.table(positions)
        return x * math.sqrt(x.shape[-1]) + self.table(positions, x.dtype)


class PatchEmbedding(nn.Module):
    """Patches of an image as tokens, row by row; with "first" pooling a class token stands before them.

    Any image of whole patches will do. Learned absolute positions are those of ``image_size``, resized for others.
    """

    def __init__(self, config: LrpeConfig):
        super().__init__()
        assert config.image_size is not None
        self.patch, self.channels, self.layout = config.patch_size, config.num_channels, config.position_layout
        self.side, width = config.image_size // config.patch_size, config.hidden_size
        self.projection = nn.Linear(config.num_channels * config.patch_size**2, width)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width)) if config.pooling == "first" else None
        self.kind = config.absolute_positions
        self.learned = LearnedPositions(self.side**2, width) if self.kind == "learned" else None
        self.sines = SinusoidalPositions(width // 2) if self.kind == "sinusoidal" else None

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, channels, height, width) -> tokens (batch, n, hidden_size) and their positions."""
        require(
            pixels.ndim == 4 and pixels.shape[1] == self.channels,
            lambda: f"pixel_values are (batch, {self.channels}, height, width); got {tuple(pixels.shape)}.",
        )
        rows, columns = pixels.shape[2] // self.patch, pixels.shape[3] // self.patch
        require(
            (rows * self.patch, columns * self.patch) == tuple(pixels.shape[2:]) and rows * columns > 0,
            lambda: f"An image is cut into whole patches of {self.patch}; got {tuple(pixels.shape[2:])}.",
        )
        patches = pixels.unflatten(3, (columns, self.patch)).unflatten(2, (rows, self.patch))
        patches = patches.to(self.projection.weight.dtype)
        x = self.projection(patches.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2))
        x = x + self.absolute(rows, columns, x) if self.kind is not None else x
        positions = place_patches(rows, columns, self.layout, x.device)
        if self.class_token is None:
            return x, positions
        first = torch.zeros_like(positions[:1])
        return torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1), torch.cat([first, positions + 1])

    def absolute(self, rows: int, columns: int, x: Tensor) -> Tensor:
        """(1, n, width)."""
        if self.sines is not None:
            row, column = grid(rows, columns, device=x.device).unbind(-1)
            return torch.cat([self.sines(row, x.dtype), self.sines(column, x.dtype)], -1)
        assert self.learned is not None
        table = self.learned.embedding.weight.T.unflatten(1, (self.side, self.side))[None]
        if (rows, columns) != (self.side, self.side):
            table = F.interpolate(table.float(), (rows, columns), mode="bicubic", antialias=True).to(x.dtype)
        return table.flatten(2).mT


def place_patches(rows: int, columns: int, layout: str, device: torch.device) -> Tensor:
    """The positions of patches: (n,), or (n, 2) on a grid."""
    if layout == "sequence":
        return sequence(rows * columns, device=device)
    cells = grid(rows, columns, device=device)
    return cells if layout == "grid" else cells.sum(-1)
