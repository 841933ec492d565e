"""The rotation of Type 2 as others compute it: the paper's listing, transformers, rotary-embedding-torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lrpe.encodings.angles import geometric
from lrpe.positions import sequence

EXACT = 1e-5


@dataclass(frozen=True)
class Peer:
    """Someone else's rotation. Its ``features`` or its ``scores`` are ours, to a relative ``tolerance``.

    ``rotate`` is None if the peer is not installed.
    """

    name: str
    equal: Literal["features", "scores"]
    tolerance: float
    rotate: Callable[[Tensor], Tensor] | None


def rotary_peers(n: int, dim: int) -> list[Peer]:
    """Every peer for n positions and dim features, with its tables ready unless its name says otherwise."""
    rounded = EXACT + n * 2.0**-22  # an angle of n radians, kept in float32, is off by up to n·2⁻²⁴
    return [
        Peer("paper's listing", "features", EXACT, listing_with_table(n, dim)),
        Peer("paper's listing, angles in the call", "features", rounded, listing),
        Peer("transformers", "scores", EXACT, transformers_rotation(n, dim)),
        Peer("rotary-embedding-torch", "features", rounded, rotary_embedding_torch_rotation(n, dim)),
    ]


def exact_angles(n: int, dim: int) -> Tensor:
    """s·α in float64: (n, dim/2)."""
    return sequence(n)[:, None] * geometric(dim // 2, dim).double()


def listing(x: Tensor) -> Tensor:
    """y = x cos(sα) + (-x_1, x_0, -x_3, x_2, ...) sin(sα), with α and s·α made anew in x's dtype, as published."""
    n, dim = x.shape[-2:]
    alpha = (10000 ** (-2 / dim * torch.arange(dim // 2))).to(x)
    alpha = torch.stack([alpha, alpha], -1).reshape(dim)
    angle = alpha * torch.arange(n).reshape(-1, 1).to(x)
    return turn_pairs(x, torch.cos(angle), torch.sin(angle))


def listing_with_table(n: int, dim: int) -> Callable[[Tensor], Tensor]:
    angle = exact_angles(n, dim).repeat_interleave(2, -1)
    cos, sin = angle.cos().float(), angle.sin().float()
    return lambda x: turn_pairs(x, cos, sin)


def turn_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    swapped = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).reshape_as(x)
    return x * cos + swapped * sin


def transformers_rotation(n: int, dim: int) -> Callable[[Tensor], Tensor] | None:
    """Llama's, which turns x[k] with x[dim/2 + k]. It rotates queries and keys; the keys here have no heads."""
    try:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
    except ImportError:
        return None
    angle = exact_angles(n, dim).repeat(1, 2)[None]  # (1, n, dim)
    cos, sin = angle.cos().float(), angle.sin().float()
    return lambda x: apply_rotary_pos_emb(x, x[:, :0], cos, sin)[0]


def rotary_embedding_torch_rotation(n: int, dim: int) -> Callable[[Tensor], Tensor] | None:
    try:
        from rotary_embedding_torch import apply_rotary_emb
    except ImportError:
        return None
    angle = exact_angles(n, dim).repeat_interleave(2, -1).float()
    return lambda x: apply_rotary_emb(angle, x)
