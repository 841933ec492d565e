"""Proposition 3.5, Type 3: Λ^(s) = (I)_{π^s}, with π^s by cycle arithmetic."""

import torch
from torch import Tensor

from lrpe.encodings.basis import Gather
from lrpe.encodings.position_matrix import PositionMatrix, Table
from lrpe.errors import require
from lrpe.precision import generator_of


class Permutation(PositionMatrix):
    """(Λ^(s) y)[j] = y[π^s(j)], for one π, or one per head, that is given or drawn.

    A drawn π comes from the seed, or from torch's global generator if the seed is None, so that every layer has one.

    π^s moves every element s steps along its cycle, modulo the cycle's length. So s may be any integer, also negative,
    and there is neither a table of powers nor a longest position.
    """

    def __init__(
        self, dim: int, permutation: Tensor | list[int] | None = None, seed: int | None = None, heads: int | None = None
    ):
        if permutation is None:
            permutation = draw(dim, seed, heads)
        permutation = permutation if isinstance(permutation, Tensor) else torch.tensor(permutation, device="cpu")
        super().__init__(dim, len(permutation) if permutation.ndim == 2 else None)
        shaped = permutation.ndim in (1, 2) and not permutation.is_floating_point()
        lists = permutation.reshape(-1, permutation.shape[-1]).tolist() if shaped else []
        require(
            len(lists) > 0 and all(sorted(pi) == list(range(dim)) for pi in lists),
            f"permutation must contain each integer 0, ..., {dim - 1} once, in shape ({dim},) or (heads, {dim}); "
            f"got {permutation.tolist()}.",
        )
        cycles = torch.tensor([_walk_cycles(pi) for pi in lists], device="cpu")  # (heads, 4, d)
        self.cycles: Tensor
        self.register_buffer("cycles", cycles.to(torch.get_default_device()))

    def power(self, positions: Tensor) -> Tensor:
        """Return π^s for each position: (batch, n) -> (batch, 1 or heads, n, d)."""
        order, start, place, length = self.cycles[:, :, None].unbind(1)  # each (heads, 1, d)
        slot = start + (place + positions[:, None, :, None]) % length
        return order.expand(slot.shape).gather(-1, slot)

    def table(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Table:
        return (self.power(positions),)

    def transform(self, y: Tensor, table: Table) -> Tensor:
        return Gather.of(y, table[0])

    def dense(self, *s: int) -> Tensor:
        power = self.power(torch.tensor([[s[0]]], device=self.cycles.device))[0, :, 0].to("cpu")  # (heads, d)
        Lambda = torch.eye(self.dim, dtype=torch.complex128, device="cpu")[power]
        return Lambda[0] if self.heads is None else Lambda


def draw(dim: int, seed: int | None, heads: int | None) -> Tensor:
    """Return a random permutation, or one per head from the same generator, on the CPU."""
    generator = generator_of(seed)
    drawn = [torch.randperm(dim, generator=generator, device="cpu") for _ in range(heads or 1)]
    return torch.stack(drawn) if heads else drawn[0]


def _walk_cycles(pi: list[int]) -> list[list[int]]:
    """Return the elements in order of their cycles, and each element's cycle start, index and cycle length."""
    order: list[int] = []
    start, place, length = [0] * len(pi), [0] * len(pi), [0] * len(pi)
    seen = set()
    for first in range(len(pi)):
        if first in seen:
            continue
        cycle = [first]
        while pi[cycle[-1]] != first:
            cycle.append(pi[cycle[-1]])
        for k, element in enumerate(cycle):
            start[element], place[element], length[element] = len(order), k, len(cycle)
        order += cycle
        seen.update(cycle)
    return [order, start, place, length]
