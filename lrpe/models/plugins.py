"""Which parts of a configuration were registered by somebody else, and so are not in the code of lrpe."""

from collections.abc import Iterator
from typing import Any

from lrpe.attention.feature_map import FEATURE_MAPS
from lrpe.encodings.config import ANGLES, BASES, MATRICES, OUTSIDE
from lrpe.encodings.family import BASELINES, FAMILY
from lrpe.encodings.registry import Registry
from lrpe.models.configuration import LrpeConfig


def plugins(config: LrpeConfig) -> list[str]:
    """The names in a configuration that are not lrpe's own, such as "the basis 'wavelet' of my_package.bases"."""
    found = {
        f"the {kind} {name!r} of {register[name].__module__}"
        for kind, name, register in _named(config)
        if register.is_foreign(name)
    }
    return sorted(found)


def _named(config: LrpeConfig) -> Iterator[tuple[str, Any, Registry]]:
    """(kind, name, register) of everything that a configuration chooses by a name of ours."""
    yield "feature map", config.feature_map, FEATURE_MAPS
    for layer in range(config.num_hidden_layers):
        choice, encoding = config.of_layer("encoding", layer), config.layer_encoding(layer)
        name = choice if isinstance(choice, str) else choice.get("name")
        yield from (("encoding", name, register) for register in (FAMILY, BASELINES))
        yield "basis", encoding.basis, BASES
        yield from (("position matrix", encoding.matrix, register) for register in (MATRICES, OUTSIDE))
        yield "kind of angles", encoding.angles, ANGLES
