"""Encodings by name: the paper's types, other members of the family, and baselines outside it."""

from collections.abc import Callable
from typing import Any

import torch

from lrpe.encodings.config import BASES, MATRICES, EncodingConfig
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.encodings.registry import Registry
from lrpe.errors import LrpeError, unknown_name

_Fields = dict[str, Any]
_TYPE2: _Fields = {"basis": "householder", "matrix": "orthogonal", "learned_angles": True}
_PERMUTEFORMER_SEED = 0xDEADBEEFDEADBEEF


def _rotate_half(given: _Fields) -> _Fields:
    """Rotate half of the dimensions, rounded up to an even number, as in the paper's listing."""
    half = given["head_dim"] // 2
    return {"matrix": "orthogonal", "rotated": half + half % 2}


def _permuteformer_as_published(given: _Fields) -> _Fields:
    """One permutation per head from PermuteFormer's own seed, before φ, and r_h = sigmoid(3h/H + 2) per step."""
    heads = given.get("heads")
    if heads is None:
        raise LrpeError(
            "PermuteFormer has a separate permutation and decay per head; pass heads=, the number of heads."
        )
    decay = torch.sigmoid(3 * torch.arange(heads, dtype=torch.float64, device="cpu") / heads + 2)
    return {"matrix": "permutation", "seed": _PERMUTEFORMER_SEED, "acts": "before", "decay": tuple(decay.tolist())}


FAMILY: Registry[Callable[[_Fields], _Fields]] = Registry(
    {
        "type1": lambda _: {"basis": "householder", "matrix": "unitary", "learned_angles": True},
        "type2": lambda _: _TYPE2,
        "type3": lambda _: {"basis": "householder", "matrix": "permutation"},
        "selective": lambda _: _TYPE2 | {"steps": "head"},
        "selective-free": lambda _: _TYPE2 | {"steps": "angle"},
        "rope": lambda _: {"basis": "identity", "matrix": "orthogonal"},
        "rope-half": lambda _: {"basis": "odd-even", "matrix": "orthogonal"},
        "permuteformer": lambda _: {"basis": "identity", "matrix": "permutation"},
        "cosformer": lambda _: {"basis": "identity", "matrix": "unitary", "angles": "constant"},
        "mixed": _rotate_half,
        "none": lambda _: {"basis": "identity", "matrix": "orthogonal", "rotated": 0},
    }
)

# The parameters of a baseline differ between heads, so its configuration needs the number of heads.
BASELINES: Registry[Callable[[_Fields], _Fields]] = Registry(
    {
        "per": _permuteformer_as_published,
        "spe": lambda _: {"matrix": "stochastic", "acts": "before"},
    }
)


def configure(name: str, head_dim: int, **changes: Any) -> EncodingConfig:
    """Return the configuration of a named encoding, with some fields changed.

    A name is one of the paper's (type1, type2, type3), Type 2 with steps from the tokens (selective, selective-free), a
    member of the family (rope, rope-half, permuteformer, cosformer, mixed, none), a baseline (per, spe), or any P × Λ
    written as ``"basis*matrix"``, such as ``"fourier*unitary"``.
    """
    given = {"head_dim": head_dim, **changes}
    known = FAMILY | BASELINES
    if name in known:
        return EncodingConfig.from_dict(known[name](given) | given)
    basis, star, matrix = name.partition("*")
    if star and basis in BASES and matrix in MATRICES:
        return EncodingConfig.from_dict({"basis": basis, "matrix": matrix} | given)
    if name in ("sinusoidal", "learned", "absolute"):
        raise LrpeError(
            f"Absolute positions are added to embeddings, and {name!r} is no encoding of queries and keys; use "
            "lrpe.encodings.SinusoidalPositions or lrpe.encodings.LearnedPositions."
        )
    raise unknown_name("encoding", name, [*known, *(f"{P}*{Lambda}" for P in BASES for Lambda in MATRICES)])


def configure_for_heads(name: str, head_dim: int, key_heads: int, **changes: Any) -> EncodingConfig:
    """Return the configuration of a named encoding; ``key_heads`` is passed on to baselines, which need it."""
    return configure(name, head_dim, **({"heads": key_heads} if name in BASELINES else {}) | changes)


def encoding(name: str, head_dim: int, **changes: Any) -> PositionalEncoding:
    """Return a named encoding, such as ``encoding("type2", head_dim=64)``; see ``configure`` for the names."""
    return configure(name, head_dim, **changes).build()
