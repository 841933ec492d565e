"""Every named composition, in one tuple that feeds the property tests; and what those tests draw."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from lrpe import Encoding, encoding
from lrpe.encodings.config import BASES, MATRICES
from lrpe.encodings.family import FAMILY

PRODUCTS = tuple(f"{P}*{Lambda}" for P in BASES for Lambda in MATRICES)
RELATIVE = (*FAMILY, "per", *PRODUCTS)  # all that are relative exactly
EVERY = (*RELATIVE, "spe")
NEEDED: dict[str, dict[str, Any]] = {  # fields that a name cannot do without
    "cosformer": {"length": 64},
    "hope": {"length": 64},
    "per": {"heads": 3},
    "spe": {"heads": 3, "realizations": 16},
}

seeds = st.integers(0, 2**31 - 1)
dims = st.integers(1, 17)
near = st.integers(-1000, 1000)
far = st.integers(-(10**6), 10**6)
several = st.lists(far, min_size=1, max_size=5)


def make(name: str, head_dim: int = 8, **changes: Any) -> Encoding:
    seed = {} if name == "per" else {"seed": 0}  # PermuteFormer has one of its own
    return encoding(name, head_dim, **NEEDED.get(name, {}) | seed | changes)  # pyright: ignore[reportReturnType]


def features(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def scores(encode: Encoding, q: Tensor, k: Tensor, s: Tensor, t: Tensor) -> Tensor:
    """(M_s q)·(M_t k) for every pair of rows."""
    return encode(q, s) @ encode(k, t).mT


def outputs(encode: Any, x: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The encoded queries and keys, of any encoding, SPE too."""
    positions = torch.arange(x.shape[-2]) if positions is None else positions
    table = encode.table(positions, x.dtype)
    return encode.query(x, table), encode.key(x, table)
