"""Positions with several axes: Λ^(s_1, ..., s_a) = block-diag(Λ_1^(s_1), ..., Λ_a^(s_a))."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from lrpe.encodings.position_matrix import PositionMatrix, Table
from lrpe.errors import require


class Grid(PositionMatrix):
    """A representation of ℤ^a: each axis acts on its own share of the dimensions, so (3, 5) and (5, 3) differ."""

    def __init__(self, *parts: PositionMatrix):
        require(len(parts) >= 2, f"parts must be at least 2, one Λ per axis; got {len(parts)}.")
        kinds = {(part.is_complex, part.heads, part.axes, part.score_scale) for part in parts}
        require(
            len(kinds) == 1 and parts[0].axes == 1,
            "parts must have one axis each and be alike: all complex or all real, with equal heads and "
            f"score_scale; got (is_complex, heads, axes, score_scale) = {', '.join(sorted(map(str, kinds)))}.",
        )
        super().__init__(sum(part.dim for part in parts), parts[0].heads)
        self.is_complex = parts[0].is_complex
        self.axes = len(parts)
        self.has_key_phase = any(part.has_key_phase for part in parts)
        self.parts = cast(Sequence[PositionMatrix], nn.ModuleList(parts))

    @property
    def score_scale(self) -> float:
        return self.parts[0].score_scale

    def table(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Table:
        """Return one table per part: parts that alternate have more tensors than others."""
        along = zip(self.parts, positions.unbind(-1), strict=True)
        return tuple(part.checked_table(s, dtype) for part, s in along)

    def key_table(self, table: Table) -> Table:
        return tuple(part.key_table(own) for part, own in zip(self.parts, table, strict=True))

    def transform(self, y: Tensor, table: Table) -> Tensor:
        shares = y.unflatten(-1, (-1, self.dim)).split([part.dim for part in self.parts], -1)  # re and im, if complex
        turned = zip(self.parts, shares, table, strict=True)
        return torch.cat([part.transform(share.flatten(-2), own) for part, share, own in turned], -1)

    def dense(self, *s: int) -> Tensor:
        return self._join([part.dense(axis) for part, axis in zip(self.parts, s, strict=True)])

    def dense_key_phase(self) -> Tensor:
        return self._join([part.dense_key_phase() for part in self.parts])

    def _join(self, blocks: list[Tensor]) -> Tensor:
        """Return block-diag of matrices, of each head's if they have heads."""
        if all(block.ndim == 2 for block in blocks):
            return torch.block_diag(*blocks)
        return torch.stack([torch.block_diag(*head) for head in zip(*blocks, strict=True)])
