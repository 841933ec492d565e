"""EncodingConfig, an encoding as plain data, and the registries of bases, angles and position matrices."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import torch
from torch import Tensor

from lrpe.encodings.angles import (
    SCALINGS,
    Angles,
    Interpolation,
    MixedAngles,
    Scaling,
    constant,
    geometric,
    half_turn,
    harmonic,
    high_frequency,
    keep_fastest,
    linear,
    whole_fractions,
)
from lrpe.encodings.basis import Basis, Householder, Identity, OddEven
from lrpe.encodings.encoding import Encoding, PositionalEncoding, check_steps
from lrpe.encodings.grid import Grid
from lrpe.encodings.matrix_basis import Cosine, Fourier, LearnedOrthogonal
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.encodings.permutation import Permutation
from lrpe.encodings.position_matrix import PositionMatrix
from lrpe.encodings.stochastic import StochasticEncoding
from lrpe.encodings.unitary import Unitary
from lrpe.errors import PLUGIN_HINT, LrpeError, is_number, require, show, unknown_name
from lrpe.precision import next_seed, normal
from lrpe.registry import Registry


@dataclass(frozen=True)
class EncodingConfig:
    """An encoding as plain data: ``build()`` makes it, ``to_dict()`` and ``from_dict()`` convert it to and from JSON.

    A field that the chosen P and Λ do not use, such as the angles of a permutation, is kept and ignored.

    Attributes:
        head_dim: d, the width of a query or key in one head.
        basis: P, by name: identity, householder, odd-even, fourier, cosine, learned.
        matrix: Λ, by name: unitary (Type 1), orthogonal (Type 2), permutation (Type 3); or stochastic, which is SPE.
        heads: the number of (key) heads if each has its own α or permutation; None if they share one.
        axes: integers per position (2 for images); each axis acts on its own share of the dimensions.
        mixed_axes: whether instead each pair of Type 2, or feature of Type 1, turns by α·(s_1, ..., s_axes) with a
            vector α of its own, of the length that ``angles`` gives and of a random direction.
        seed: the seed of Householder vectors, permutations, the learned basis and SPE's noise. With None each
            ``build()`` draws from torch's global generator, so that every layer has its own.
        reflections: Householder reflections in P.
        learned_basis: whether the Householder vectors are learned.
        angles: α, by name: geometric, half-turn, fractions; or linear, harmonic, constant, hope, which need ``length``;
            or as numbers, one per pair of Type 2 or feature of Type 1, such as those of ``lrpe.angles.matching``.
        base: the base of geometric angles.
        length: the longest position, for the angles that depend on it.
        learned_angles: whether α is learned, and with ``mixed_axes`` its direction.
        rotated_share: the share of the angles, the fastest, that are not set to 0.
        key_phase: whether keys of Type 1 or 2 turn by a learned phase δ besides, one per angle, which starts at 0.
        rotated: dimensions that Type 2 rotates; all if None.
        alternating: dimensions that Type 2 multiplies by (-1)^s.
        scaling: scales α for longer contexts: Interpolation, NTKAware or YaRN, or {"kind": "yarn", "factor": 4, ...}.
        acts: whether it is applied before or after the feature map φ.
        decay: one r_h per head if scores decay as r_h^|t-s|, else None.
        steps: "fixed", or whether an attention layer takes the steps from the tokens: one per "head", one per "angle",
            "shared", which is one per angle times a Δ per head that a decay may share, "switch", which is one from 0 to
            1 per angle, or by a rule of STEP_RULES.
        sines: K of SPE, the number of sines.
        realizations: R of SPE, which is its feature width.
    """

    head_dim: int
    basis: str = "identity"
    matrix: str = "orthogonal"
    heads: int | None = None
    axes: int = 1
    mixed_axes: bool = False
    seed: int | None = None
    reflections: int = 1
    learned_basis: bool = False
    angles: str | tuple[float, ...] = "geometric"
    base: float = 10000.0
    length: int | None = None
    learned_angles: bool = False
    rotated_share: float = 1.0
    key_phase: bool = False
    rotated: int | None = None
    alternating: int = 0
    scaling: dict[str, Any] | None = None
    acts: Literal["before", "after"] = "after"
    decay: tuple[float, ...] | None = None
    steps: str = "fixed"
    sines: int = 1
    realizations: int = 64

    def __post_init__(self):
        _check_types(self)
        require(
            1 <= self.axes <= self.head_dim,
            f"axes must be at least 1, and head_dim at least axes; got axes={self.axes}, head_dim={self.head_dim}.",
        )
        _check_sizes(self)
        require(
            self.seed is None or 0 <= self.seed < 2**64,
            f"seed must be None or from 0 to 2^64 - 1; got seed={self.seed}.",
        )
        check_steps(self.steps)
        require(self.acts in ("before", "after"), f"acts must be 'before' or 'after' (φ); got acts={self.acts!r}.")
        _look_up("basis", self.basis, BASES)
        _look_up("position matrix", self.matrix, MATRICES | OUTSIDE)
        if isinstance(self.angles, str):
            _look_up("kind of angles", self.angles, ANGLES)
        else:
            object.__setattr__(self, "angles", _read_angles(self.angles))
        if self.decay is not None:
            object.__setattr__(self, "decay", tuple(self.decay))
        if self.scaling is not None:
            object.__setattr__(self, "scaling", _write_scaling(self.scaling))
        _check_scaling(self)

    def build(self) -> PositionalEncoding:
        if self.matrix in OUTSIDE:
            return OUTSIDE[self.matrix](self)
        parts = [MATRICES[self.matrix](self, axis) for axis in range(self.blocks)]
        require(
            all(part.axes == self.axes // self.blocks for part in parts),
            f"mixed_axes needs angles, as Types 1 and 2 have; got matrix={self.matrix!r}. Pass mixed_axes=False.",
        )
        return Encoding(
            BASES[self.basis](self),
            parts[0] if len(parts) == 1 else Grid(*parts),
            acts=self.acts,
            decay=None if self.decay is None else torch.tensor(self.decay, dtype=torch.float64, device="cpu"),
            steps=self.steps,
        )

    @property
    def blocks(self) -> int:
        """The number of blocks of Λ, each of which follows one axis, or all axes if they are mixed."""
        return 1 if self.mixed_axes else self.axes

    def share(self, dims: int, axis: int) -> int:
        """Return an axis's share of ``dims`` dimensions; the first axes take the remainder. Mixed axes share all."""
        return dims // self.blocks + (axis < dims % self.blocks)

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        lists = {name: list(values[name]) for name in ("angles", "decay") if isinstance(values[name], tuple)}
        return values | lists

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "EncodingConfig":
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                raise unknown_name("field of EncodingConfig", key, known)
        require("head_dim" in values, f"head_dim is required; got only {sorted(values)}.")
        return cls(**values)

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> "EncodingConfig":
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise LrpeError(
                f"The text of an EncodingConfig must be a JSON object; got {text[:80]!r}: {error}."
            ) from None
        require(isinstance(values, dict), f"The text of an EncodingConfig must be a JSON object; got {text[:80]!r}.")
        return cls.from_dict(values)


def _look_up(kind: str, name: str, known: dict[str, Any]) -> Any:
    if name not in known:
        raise unknown_name(kind, name, known, PLUGIN_HINT)
    return known[name]


_TYPES: dict[Any, tuple[str, ...]] = {
    int: ("head_dim", "axes", "reflections", "alternating", "sines", "realizations"),
    (int, type(None)): ("heads", "length", "rotated", "seed"),
    bool: ("learned_basis", "learned_angles", "mixed_axes", "key_phase"),
    str: ("basis", "matrix", "acts"),
    (str, list, tuple): ("angles",),
    (int, float): ("base", "rotated_share"),
    (list, tuple, type(None)): ("decay",),
}


_LEAST = {"head_dim": 1, "heads": 1, "reflections": 0, "alternating": 0, "sines": 1, "realizations": 1}


def _check_types(config: EncodingConfig) -> None:
    """Check the type of every field, because JSON and command lines can give others."""
    for kind, names in _TYPES.items():
        for name in names:
            value = getattr(config, name)
            fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
            require(fits, f"{name} of an encoding cannot be a {type(value).__name__}; got {name}={value!r}.")


def _check_sizes(config: EncodingConfig) -> None:
    """Check that sizes are at least what an encoding needs, and below 2^20."""
    for name, least in _LEAST.items():
        value = getattr(config, name)
        fits = least <= value < 2**20 if isinstance(value, int) else name == "heads"  # which may be None
        require(fits, f"{name} must be at least {least} and below 2^20; got {name}={str(value)[:40]}.")
    require(
        0 <= config.rotated_share <= 1,
        f"rotated_share must be from 0 to 1; got rotated_share={config.rotated_share}.",
    )
    for r in config.decay or ():
        number = isinstance(r, int | float) and not isinstance(r, bool)
        require(number and 0 < r <= 1, f"decay must have one r with 0 < r ≤ 1 per head; got decay={config.decay}.")


def _read_angles(angles: Iterable[Any]) -> tuple[float, ...]:
    """Return angles that are given as numbers."""
    found = tuple(angles)
    for alpha in found:
        require(
            is_number(alpha) and math.isfinite(alpha),
            lambda alpha=alpha: f"angles must be a name or finite numbers; got {show(alpha)} among the numbers.",
        )
    return tuple(map(float, found))


def _check_scaling(config: EncodingConfig) -> None:
    """Check that NTK-aware and YaRN scaling have geometric angles; interpolation takes any."""
    scaling = _read_scaling(config.scaling)
    require(
        scaling is None or isinstance(scaling, Interpolation) or config.angles == "geometric",
        f"{type(scaling).__name__} needs angles='geometric'; got angles={config.angles!r}. Interpolation scales any.",
    )


BASES: Registry[Callable[[EncodingConfig], Basis]] = Registry(
    {
        "identity": lambda c: Identity(c.head_dim),
        "householder": lambda c: Householder(c.head_dim, c.reflections, c.seed, c.learned_basis),
        "odd-even": lambda c: OddEven(c.head_dim),
        "fourier": lambda c: Fourier(c.head_dim),
        "cosine": lambda c: Cosine(c.head_dim),
        "learned": lambda c: LearnedOrthogonal(c.head_dim, c.seed),
    }
)


_WITHOUT_LENGTH = ("half-turn", "fractions")
ANGLES: Registry[Callable[..., Tensor]] = Registry(
    {
        "geometric": geometric,
        "linear": linear,
        "harmonic": harmonic,
        "constant": constant,
        "hope": high_frequency,
        "half-turn": lambda count, length=None: half_turn(count),
        "fractions": lambda count, length=None: whole_fractions(count),
    }
)


def _build_angles(config: EncodingConfig, count: int, dim: int) -> Angles:
    alpha = keep_fastest(_find_alpha(config, count, dim), config.rotated_share)
    lead = () if config.heads is None else (config.heads,)
    alpha, scaling = alpha.expand(*lead, count), _read_scaling(config.scaling)
    options: dict[str, Any] = {"scaling": scaling, "dim": dim, "base": config.base, "key_phase": config.key_phase}
    if not config.mixed_axes or config.axes == 1:
        return Angles(alpha, config.learned_angles, **options)
    directions = normal(*lead, config.axes, count, seed=next_seed(config.seed)).double()
    return MixedAngles(alpha, directions, config.learned_angles, **options)


def _find_alpha(config: EncodingConfig, count: int, dim: int) -> Tensor:
    """Return α (count,) of the chosen kind; ``dim`` is the width in the exponent of geometric angles."""
    if isinstance(config.angles, tuple):
        require(
            len(config.angles) == count,
            f"angles must have {count} numbers, one per pair of Type 2 or feature of Type 1 along each axis; got "
            f"{len(config.angles)}.",
        )
        return torch.tensor(config.angles, dtype=torch.float64, device="cpu")
    if config.angles == "geometric":
        return geometric(count, dim, config.base)
    if config.angles in _WITHOUT_LENGTH:
        return ANGLES[config.angles](count)
    length = config.length
    if length is None:
        raise LrpeError(f"angles={config.angles!r} needs the longest length; pass length=, such as 512.")
    if config.angles == "hope":
        return high_frequency(count, length, dim, config.base)
    return ANGLES[config.angles](count, length)


def _write_scaling(scaling: Any) -> dict[str, Any]:
    """Return a scaling, or its dictionary, as a dictionary."""
    for kind, make in SCALINGS.items():
        if isinstance(scaling, make):
            return {"kind": kind} | asdict(scaling)
    require(
        isinstance(scaling, dict) and "kind" in scaling,
        f"scaling must be a dict like {{'kind': 'yarn', 'factor': 4, 'length': 2048}}, of kind {', '.join(SCALINGS)}; "
        f"got {scaling!r}.",
    )
    return dict(scaling)


def _read_scaling(scaling: dict[str, Any] | None) -> Scaling | None:
    if scaling is None:
        return None
    values = dict(scaling)
    make = _look_up("scaling", values.pop("kind"), SCALINGS)
    known = [field.name for field in fields(make)]
    for key in values:
        if key not in known:
            raise unknown_name(f"field of {make.__name__}", key, known)
    try:
        return make(**values)
    except TypeError as error:
        raise LrpeError(f"{make.__name__} takes {', '.join(known)}; got {values}: {error}.") from None


def _build_unitary(config: EncodingConfig, axis: int) -> Unitary:
    dim = config.share(config.head_dim, axis)
    return Unitary(dim, _build_angles(config, dim, dim))


def _build_orthogonal(config: EncodingConfig, axis: int) -> Orthogonal:
    """Give each axis its share of the rotated pairs, of the fixed and of the alternating dimensions."""
    free = config.head_dim - config.alternating
    rotated = free - free % 2 if config.rotated is None else config.rotated
    require(
        0 <= rotated <= free and rotated % 2 == 0 and (rotated == 0 or rotated // 2 >= config.blocks),
        f"rotated must be even, 0 or at least 2 per axis, and rotated + alternating at most head_dim; got "
        f"rotated={rotated}, alternating={config.alternating}, head_dim={config.head_dim}, axes={config.axes}.",
    )
    pairs, rest = config.share(rotated // 2, axis), config.share(config.head_dim - rotated, axis)
    alternating = config.share(config.alternating, axis)
    return Orthogonal(2 * pairs + rest, _build_angles(config, pairs, 2 * pairs), alternating)


def _build_permutation(config: EncodingConfig, axis: int) -> Permutation:
    dim = config.share(config.head_dim, axis)
    require(
        dim > 1 or config.axes == 1,
        f"head_dim must be at least 2 per axis; got head_dim={config.head_dim}, axes={config.axes}.",
    )
    return Permutation(dim, seed=next_seed(config.seed, axis), heads=config.heads)


def _build_stochastic(config: EncodingConfig) -> StochasticEncoding:
    if config.heads is None:
        raise LrpeError("SPE has separate frequencies per head; pass heads=, the number of heads.")
    require(config.axes == 1, f"axes must be 1 for SPE; got axes={config.axes}.")
    return StochasticEncoding(config.head_dim, config.heads, config.sines, config.realizations, seed=config.seed)


MATRICES: Registry[Callable[[EncodingConfig, int], PositionMatrix]] = Registry(
    {
        "unitary": _build_unitary,
        "orthogonal": _build_orthogonal,
        "permutation": _build_permutation,
    }
)

OUTSIDE: Registry[Callable[[EncodingConfig], PositionalEncoding]] = Registry({"stochastic": _build_stochastic})
