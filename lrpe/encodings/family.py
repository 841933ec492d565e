"""Encodings by name: the paper's types, other members of the family, and baselines outside it."""

import warnings
from collections.abc import Callable
from typing import Any

import torch

from lrpe.encodings.config import BASES, MATRICES, EncodingConfig
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.errors import PLUGIN_HINT, LrpeError, unknown_name
from lrpe.registry import Registry

_Fields = dict[str, Any]
_TYPE2: _Fields = {"basis": "householder", "matrix": "orthogonal", "learned_angles": True}
_ROPE: _Fields = {"basis": "identity", "matrix": "orthogonal"}
_PERMUTEFORMER_SEED = 0xDEADBEEFDEADBEEF


def _rotate_half(given: _Fields) -> _Fields:
    """Rotate half of the dimensions, rounded up to an even number, as in the paper's listing (mix_reflect)."""
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
        "switched": lambda _: _ROPE | {"angles": "fractions", "steps": "switch"},
        "lrpe-d": lambda _: _TYPE2,
        "rope": lambda _: _ROPE,
        "rope-half": lambda _: {"basis": "odd-even", "matrix": "orthogonal"},
        "permuteformer": lambda _: {"basis": "identity", "matrix": "permutation"},
        "cosformer": lambda _: {"basis": "identity", "matrix": "unitary", "angles": "constant"},
        "half-rotated": _rotate_half,
        "hope": lambda _: _ROPE | {"angles": "hope"},
        "p-rope": lambda _: _ROPE | {"rotated_share": 0.75},
        "retnet": lambda _: _ROPE,
        # 100^(-2k/d) = 10000^(-k/d): PoPE's d frequencies span the range of RoPE's d/2
        "pope": lambda _: {"basis": "identity", "matrix": "unitary", "base": 100.0, "key_phase": True},
        "mamba3": lambda _: _ROPE | {"angles": "half-turn", "steps": "shared"},
        "none": lambda _: _ROPE | {"rotated": 0},
    }
)

# Members that exist on a grid of several axes alone.
GRIDS: Registry[Callable[[_Fields], _Fields]] = Registry(
    {"mixed": lambda _: _ROPE | {"learned_angles": True, "mixed_axes": True}}
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
    member of the family (rope, rope-half, permuteformer, cosformer, half-rotated, hope, p-rope, pope, retnet, lrpe-d,
    mamba3, switched, none; mixed on a grid), a baseline (per, spe), or any P × Λ written as ``"basis*matrix"``, such as
    ``"fourier*unitary"``. docs/family.md has a table of all.
    """
    given = {"head_dim": head_dim, **changes}
    name = _read_old_name(name, given)
    known = FAMILY | GRIDS | BASELINES
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
    products = [f"{P}*{Lambda}" for P in BASES for Lambda in MATRICES]
    raise unknown_name("encoding", name, [*known, *products], PLUGIN_HINT)


def _read_old_name(name: str, given: _Fields) -> str:
    """Return the name that replaces "mixed" where it has one axis and can only mean the listing's half rotation."""
    if name != "mixed" or given.get("axes", 1) != 1:
        return name
    warnings.warn(
        "'mixed' along a sequence is now called 'half-rotated', and 'mixed' will need axes of at least 2. Use "
        "'half-rotated'.",
        DeprecationWarning,
        stacklevel=3,
    )
    return "half-rotated"


def configure_for_heads(name: str, head_dim: int, key_heads: int, **changes: Any) -> EncodingConfig:
    """Return the configuration of a named encoding; ``key_heads`` is passed on to baselines, which need it."""
    return configure(name, head_dim, **({"heads": key_heads} if name in BASELINES else {}) | changes)


def encoding(name: str, head_dim: int, **changes: Any) -> PositionalEncoding:
    """Return a named encoding, such as ``encoding("type2", head_dim=64)``; see ``configure`` for the names."""
    return configure(name, head_dim, **changes).build()
