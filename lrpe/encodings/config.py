"""EncodingConfig: an encoding in words and numbers, JSON in and out."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor

from lrpe.encodings.angles import Angles, constant, geometric, harmonic, linear
from lrpe.encodings.basis import Basis, Cosine, Fourier, Householder, Identity, LearnedOrthogonal, OddEven
from lrpe.encodings.encoding import Encoding, PositionalEncoding
from lrpe.encodings.grid import Grid
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.encodings.permutation import Permutation
from lrpe.encodings.position_matrix import PositionMatrix
from lrpe.encodings.scaling import SCALINGS, Scaling
from lrpe.encodings.stochastic import StochasticEncoding
from lrpe.encodings.unitary import Unitary
from lrpe.errors import LrpeError, require, unknown_name


@dataclass(frozen=True)
class EncodingConfig:
    """An encoding in words and numbers. ``build()`` makes it; ``to_dict()`` and ``from_dict()`` are JSON's side.

    Attributes:
        head_dim: d, the width of a query or key in one head.
        basis: P, by name: identity, householder, odd-even, fourier, cosine, learned.
        matrix: Λ, by name: unitary (Type 1), orthogonal (Type 2), permutation (Type 3); or stochastic, which is SPE.
        heads: the number of (key) heads if each has its own α or permutation; None if they share one.
        axes: integers in a position (2 for images); each axis turns its own share of the dimensions.
        seed: of the Householder vectors, the permutation, the learned basis and SPE's noise.
        reflections: Householder reflections in P.
        learned_basis: whether the Householder vectors are learned.
        angles: α, by name: geometric, linear, harmonic, constant (the last three need ``length``).
        base: of geometric angles.
        length: the longest position, for the angles that depend on it.
        learned_angles: whether α is learned.
        rotated: dimensions that Type 2 turns; all if None.
        alternating: dimensions that Type 2 multiplies by (-1)^s.
        scaling: how α shrinks for longer texts: {"kind": "interpolation" | "ntk" | "yarn", "factor": ..., ...}.
        acts: before or after the feature map φ.
        decay: r_h a head, if scores decay as r_h^|t-s|.
        sines: K of SPE.
        realizations: R of SPE, which is its feature width.
    """

    head_dim: int
    basis: str = "identity"
    matrix: str = "orthogonal"
    heads: int | None = None
    axes: int = 1
    seed: int = 0
    reflections: int = 1
    learned_basis: bool = False
    angles: str = "geometric"
    base: float = 10000.0
    length: int | None = None
    learned_angles: bool = False
    rotated: int | None = None
    alternating: int = 0
    scaling: dict[str, Any] | None = None
    acts: Literal["before", "after"] = "after"
    decay: tuple[float, ...] | None = None
    sines: int = 1
    realizations: int = 64

    def __post_init__(self):
        require(self.head_dim >= 1, f"head_dim is 1 or more; got head_dim={self.head_dim}.")
        require(
            1 <= self.axes <= self.head_dim,
            f"A position has one axis or more, and each turns a dimension or more; got axes={self.axes}, "
            f"head_dim={self.head_dim}.",
        )
        require(self.heads is None or self.heads >= 1, f"heads is 1 or more, or None; got heads={self.heads}.")
        lookup("basis", self.basis, BASES)
        lookup("position matrix", self.matrix, MATRICES | OUTSIDE)
        lookup("kind of angles", self.angles, ANGLES)
        if self.decay is not None:
            object.__setattr__(self, "decay", tuple(self.decay))

    def build(self) -> PositionalEncoding:
        if self.matrix in OUTSIDE:
            return OUTSIDE[self.matrix](self)
        parts = [MATRICES[self.matrix](self, axis) for axis in range(self.axes)]
        scaling = read_scaling(self.scaling)
        return Encoding(
            BASES[self.basis](self),
            parts[0] if self.axes == 1 else Grid(*parts),
            acts=self.acts,
            decay=None if self.decay is None else torch.tensor(self.decay, dtype=torch.float64, device="cpu"),
            score_scale=1.0 if scaling is None else scaling.score_scale,
        )

    def share(self, dims: int, axis: int) -> int:
        """An axis's share of so many dimensions; the first axes take what is left over."""
        return dims // self.axes + (axis < dims % self.axes)

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        return values | {"decay": None if self.decay is None else list(self.decay)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "EncodingConfig":
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                raise unknown_name("field of EncodingConfig", key, known)
        require("head_dim" in values, f"An encoding needs its head_dim; got only {sorted(values)}.")
        return cls(**values)

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> "EncodingConfig":
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise LrpeError(f"An EncodingConfig is a JSON object; got {text[:80]!r}: {error}.") from None
        require(isinstance(values, dict), f"An EncodingConfig is a JSON object; got {text[:80]!r}.")
        return cls.from_dict(values)


def lookup(kind: str, name: str, known: dict[str, Any]) -> Any:
    if name not in known:
        raise unknown_name(kind, name, known)
    return known[name]


BASES: dict[str, Callable[[EncodingConfig], Basis]] = {
    "identity": lambda c: Identity(c.head_dim),
    "householder": lambda c: Householder(c.head_dim, c.reflections, c.seed, c.learned_basis),
    "odd-even": lambda c: OddEven(c.head_dim),
    "fourier": lambda c: Fourier(c.head_dim),
    "cosine": lambda c: Cosine(c.head_dim),
    "learned": lambda c: LearnedOrthogonal(c.head_dim, c.seed),
}


ANGLES: dict[str, Callable[..., Tensor]] = {
    "geometric": geometric,
    "linear": linear,
    "harmonic": harmonic,
    "constant": constant,
}


def build_angles(config: EncodingConfig, count: int, dim: int) -> Angles:
    if config.angles == "geometric":
        alpha = geometric(count, max(dim, 1), config.base)
    else:
        length = config.length
        if length is None:
            raise LrpeError(f"{config.angles.capitalize()} angles need the longest length; pass length=, such as 512.")
        alpha = ANGLES[config.angles](count, length)
    if config.heads is not None:
        alpha = alpha.expand(config.heads, count)
    return Angles(alpha, config.learned_angles, read_scaling(config.scaling), dim, config.base)


def read_scaling(scaling: dict[str, Any] | None) -> Scaling | None:
    if scaling is None:
        return None
    values = dict(scaling)
    make = lookup("scaling", values.pop("kind", ""), SCALINGS)
    known = [field.name for field in fields(make)]
    for key in values:
        if key not in known:
            raise unknown_name(f"field of {make.__name__}", key, known)
    try:
        return make(**values)
    except TypeError as error:
        raise LrpeError(f"{make.__name__} takes {', '.join(known)}; got {values}: {error}.") from None


def build_unitary(config: EncodingConfig, axis: int) -> Unitary:
    dim = config.share(config.head_dim, axis)
    return Unitary(dim, build_angles(config, dim, dim))


def build_orthogonal(config: EncodingConfig, axis: int) -> Orthogonal:
    dim, alternating = config.share(config.head_dim, axis), config.share(config.alternating, axis)
    free = max(dim - alternating, 0)
    rotated = free - free % 2 if config.rotated is None else config.share(config.rotated, axis)
    require(
        rotated >= 0 and rotated % 2 == 0,
        f"Type 2 rotates pairs, so an even number of dimensions on each axis; got {rotated} of {dim}.",
    )
    return Orthogonal(dim, build_angles(config, rotated // 2, rotated), alternating)


def build_permutation(config: EncodingConfig, axis: int) -> Permutation:
    return Permutation(config.share(config.head_dim, axis), seed=config.seed + axis, heads=config.heads)


def build_stochastic(config: EncodingConfig) -> StochasticEncoding:
    if config.heads is None:
        raise LrpeError("SPE has frequencies of its own in each head; pass heads=, the number of heads.")
    return StochasticEncoding(config.head_dim, config.heads, config.sines, config.realizations, seed=config.seed)


MATRICES: dict[str, Callable[[EncodingConfig, int], PositionMatrix]] = {
    "unitary": build_unitary,
    "orthogonal": build_orthogonal,
    "permutation": build_permutation,
}

OUTSIDE: dict[str, Callable[[EncodingConfig], PositionalEncoding]] = {"stochastic": build_stochastic}
