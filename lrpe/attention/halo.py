"""The real tokens on either side of a part of a row, which other processes hold and a convolution needs."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lrpe.attention.tokens import Tokens
from lrpe.precision import compute_dtype


class Halo(NamedTuple):
    """The last ``before`` real tokens before a part and the first ones after it, zeros where the row has none."""

    before: Tensor  # (batch, before, channels)
    after: Tensor  # (batch, after, channels)


def fetch_halo(real: Tensor, tokens: Tokens, before: int, after: int) -> Halo:
    """Fetch the halo of a part whose real tokens are the first of ``real`` (batch, n, channels).

    Each process sends its own outermost tokens, whose number does not depend on n. A part may be shorter than the halo,
    which then reaches into the parts beyond it.
    """
    assert tokens.part is not None
    part, counts = tokens.part, real_before(tokens, real)
    own = counts[:, part.rank + 1] - counts[:, part.rank]  # real tokens of the own part, (batch,)
    first = _take(real, torch.arange(after, device=real.device).expand(len(own), -1), own)
    last = _take(real, own[:, None] - before + torch.arange(before, device=real.device), own)
    edges = part.gather(torch.cat([first, last], 1).to(compute_dtype(real.dtype))).to(real.dtype)
    firsts, lasts = edges.split([after, before], 2)  # (processes, batch, after or before, channels)
    left = counts[:, part.rank, None] - before + torch.arange(before, device=real.device)
    right = counts[:, part.rank + 1, None] + torch.arange(after, device=real.device)
    return Halo(_pick(lasts, left, counts, before, end=1), _pick(firsts, right, counts, 0, end=0))


def real_before(tokens: Tokens, like: Tensor) -> Tensor:
    """Return the number of a row's real tokens before each part, and in the row; (batch, processes + 1)."""
    assert tokens.part is not None
    borders = torch.tensor(tokens.part.borders, device=like.device)
    mask = None if tokens.whole is None else tokens.whole.mask
    if mask is None:
        return borders.expand(like.shape[0], -1)
    return F.pad(mask.long().cumsum(-1), (1, 0))[:, borders]


def owners_around(tokens: Tokens, like: Tensor, before: int, after: int) -> Tensor:
    """Return the packed sequence of the own real tokens and those around them, -1 beyond the row.

    It is (batch, before + n + after); the real tokens of a row follow each other, as on a convolution's line.
    """
    assert tokens.part is not None
    assert tokens.whole is not None
    assert tokens.whole.sequences is not None
    counts, mask = real_before(tokens, like), tokens.whole.mask
    owners = tokens.whole.sequences.expand(like.shape[0], -1)
    if mask is not None:  # to the left, in their order
        owners = owners.gather(1, (~mask).long().argsort(dim=1, stable=True))
    first = counts[:, tokens.part.rank, None] - before
    places = first + torch.arange(before + like.shape[1] + after, device=like.device)
    inside = (places >= 0) & (places < counts[:, -1:])
    return torch.where(inside, owners.gather(1, places.clamp(0, max(owners.shape[1] - 1, 0))), -1)


def _take(x: Tensor, places: Tensor, count: Tensor) -> Tensor:
    """Return the tokens of x (batch, n, channels) at these places, 0 outside of 0 ... count - 1."""
    inside = (places >= 0) & (places < count[:, None])
    padded = F.pad(x, (0, 0, 0, 1))  # so that a part without tokens has a place to read
    found = padded.gather(1, places.clamp(0, x.shape[1])[..., None].expand(-1, -1, x.shape[2]))
    return torch.where(inside[..., None], found, 0)


def _pick(edges: Tensor, places: Tensor, counts: Tensor, size: int, end: int) -> Tensor:
    """Return the tokens at these places among a row's real ones from the edges that the processes sent.

    An edge of ``size`` tokens ends with its part (end = 1); one of size 0 here begins with it (end = 0).
    """
    owner = (places[..., None] >= counts[:, None, 1:]).sum(-1).clamp(max=edges.shape[0] - 1)  # the part of each place
    slot = places - counts.gather(1, owner + end) + size
    inside = (places >= 0) & (places < counts[:, -1:])
    rows = torch.arange(places.shape[0], device=places.device)[:, None]
    return torch.where(inside[..., None], edges[owner, rows, slot.clamp(0, max(edges.shape[2] - 1, 0))], 0)
