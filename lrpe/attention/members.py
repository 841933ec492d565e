"""The feature map, the normaliser and the decay that a named encoding was published with."""

from typing import Any, NamedTuple

from lrpe.attention.decay import DecayChoice
from lrpe.attention.feature_map import FeatureMap
from lrpe.attention.layer import RECOMMENDED
from lrpe.attention.normalizer import Normalizer
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.registry import Registry


class Member(NamedTuple):
    """What completes an encoding to a method of linear attention; the recommended parts, unless a paper says more."""

    feature_map: str = RECOMMENDED.feature_map
    normalizer: str = RECOMMENDED.normalizer
    decay: str | None = RECOMMENDED.decay


MEMBERS: Registry[Member] = Registry(
    {
        "pope": Member(feature_map="softplus", decay=None),
        "retnet": Member("identity", "output-rms-head", "retnet"),
        "lrpe-d": Member("silu", "output-rms", "tnl"),
        "mamba3": Member("identity", "output-rms-head", "mamba3"),
        "per": Member(decay=None),  # its encoding brings its own
    }
)


def member_of(encoding: Any) -> Member:
    """Return the parts that "default" means with an encoding: a name, fields with a name, or any other choice."""
    name = encoding.get("name") if isinstance(encoding, dict) else encoding
    if isinstance(name, str):
        return MEMBERS.get(name, Member())
    own = isinstance(name, EncodingConfig | PositionalEncoding) and name.decay is not None
    return Member(decay=None) if own else Member()


def complete(
    encoding: Any, feature_map: str | FeatureMap, normalizer: str | Normalizer, decay: DecayChoice
) -> tuple[str | FeatureMap, str | Normalizer, DecayChoice]:
    """Return the three choices, each "default" replaced by what the encoding was published with."""
    member = member_of(encoding)
    return (
        member.feature_map if _is_default(feature_map) else feature_map,
        member.normalizer if _is_default(normalizer) else normalizer,
        member.decay if _is_default(decay) else decay,
    )


def _is_default(choice: Any) -> bool:
    return isinstance(choice, str) and choice == "default"
