"""The choices of linear attention: what "default" means for an encoding, and the encoding and summation by name."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from lrpe.attention.decay import DecayChoice
from lrpe.attention.engines.choice import choose_engine
from lrpe.attention.feature_map import FeatureMap, feature_width
from lrpe.attention.normalizer import Normalizer
from lrpe.attention.sums.problem import Problem, Summation, Sums, naive_sums
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.encodings.family import configure_for_heads
from lrpe.errors import LrpeError, check_count, require, unknown_name
from lrpe.registry import Registry


class Member(NamedTuple):
    """The feature map, normaliser and decay that an encoding was published with; here, those of q, k and v alone."""

    feature_map: str = "elu+1"
    normalizer: str = "plain"
    decay: str | None = "spread"


DEFAULT_ENCODING, DEFAULTS = "type2", Member()  # of attention; models have others
MEMBERS: Registry[Member] = Registry(
    {
        "pope": Member(feature_map="softplus", decay=None),
        "retnet": Member("identity", "output-rms-head", "retnet"),
        "lrpe-d": Member("silu", "output-rms", "tnl"),
        "mamba3": Member("identity", "output-rms-head", "mamba3"),
        "per": Member(decay=None),  # its encoding brings its own
    }
)


def member_of(encoding: Any, others: Member = DEFAULTS) -> Member:
    """Return the parts that "default" means with an encoding: a name, fields with a name, or any other choice.

    ``others`` are the parts for an encoding that was published without any.
    """
    name = encoding.get("name") if isinstance(encoding, dict) else encoding
    if isinstance(name, str):
        return MEMBERS.get(name, others)
    own = isinstance(name, EncodingConfig | PositionalEncoding) and name.decay is not None
    return others._replace(decay=None) if own else others


def complete(
    encoding: Any,
    feature_map: str | FeatureMap,
    normalizer: str | Normalizer,
    decay: DecayChoice,
    others: Member = DEFAULTS,
) -> tuple[str | FeatureMap, str | Normalizer, DecayChoice]:
    """Return the three choices, each "default" replaced by what the encoding was published with, or by ``others``."""
    member = member_of(encoding, others)
    return (
        member.feature_map if _is_default(feature_map) else feature_map,
        member.normalizer if _is_default(normalizer) else normalizer,
        member.decay if _is_default(decay) else decay,
    )


def _is_default(choice: Any) -> bool:
    return isinstance(choice, str) and choice == "default"


EncodingChoice = str | EncodingConfig | PositionalEncoding


def configure_features(choice: Any, phi: FeatureMap, head_dim: int, key_heads: int) -> EncodingConfig:
    """Return the configuration of a named encoding, of φ's width if it acts after φ; a configuration is unchanged."""
    if isinstance(choice, EncodingConfig):
        return choice
    if not isinstance(choice, str):
        raise LrpeError(f"encoding must be a name, an EncodingConfig or an encoding; got {type(choice).__name__}.")
    config = configure_for_heads(choice, head_dim, key_heads)
    width = head_dim if config.acts == "before" else feature_width(phi, head_dim)
    return config if width == head_dim else configure_for_heads(choice, width, key_heads)


def choose_encoding(choice: EncodingChoice, dim: int, key_heads: int) -> PositionalEncoding:
    """Return the encoding of vectors of size ``dim`` by name or configuration, or the given one after checking it."""
    if isinstance(choice, str):
        choice = configure_for_heads(choice, dim, key_heads)
    encoding = choice.build() if isinstance(choice, EncodingConfig) else choice
    if not isinstance(encoding, PositionalEncoding):
        raise LrpeError(f"encoding must be a name, an EncodingConfig or an encoding; got {type(encoding).__name__}.")
    require(
        encoding.head_dim == dim,
        f"encoding must act on vectors of size {dim} here; got head_dim={encoding.head_dim}.",
    )
    require(
        encoding.heads in (None, key_heads),
        f"encoding must have heads=None or one for each of the {key_heads} key heads; got heads={encoding.heads}.",
    )
    return encoding


@dataclass(frozen=True)
class Causal(Summation):
    """Sum over a query's own and earlier keys, chunk by chunk, in time and memory linear in n."""

    chunk: int = 64
    causal = True

    def __post_init__(self):
        check_count("chunk", self.chunk)

    def __call__(self, problem: Problem) -> Sums:
        problem = problem._replace(chunk=self.chunk)
        return choose_engine(problem).sums(problem)


@dataclass(frozen=True)
class Bidirectional(Summation):
    """Sum over all keys: once for all queries, or by two causal passes with a decay or packed sequences."""

    chunk: int = 64
    causal = False

    def __post_init__(self):
        check_count("chunk", self.chunk)

    def __call__(self, problem: Problem) -> Sums:
        require(not problem.starts, "A bidirectional sum takes no initial state. Pass state=None, or use Causal().")
        problem = problem._replace(chunk=self.chunk, causal=False)
        return choose_engine(problem).sums(problem)


@dataclass(frozen=True)
class Quadratic(Summation):
    """Form the n × n matrix of weighted scores: the specification that the linear-time sums are tested against."""

    causal: bool = True  # type: ignore[assignment]

    def __call__(self, problem: Problem) -> Sums:
        return naive_sums(problem._replace(causal=self.causal))


_SUMMATIONS: dict[str, type[Summation]] = {"causal": Causal, "bidirectional": Bidirectional}


def choose_summation(choice: str | Summation) -> Summation:
    """Return the summation of this name, or the given object."""
    if isinstance(choice, Summation):
        return choice
    if not isinstance(choice, str):
        raise LrpeError(f"summation must be a name or a Summation; got {type(choice).__name__}.")
    if choice not in _SUMMATIONS:
        raise unknown_name("summation", choice, _SUMMATIONS)
    return _SUMMATIONS[choice]()
