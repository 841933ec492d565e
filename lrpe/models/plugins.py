"""Which parts of a configuration were registered by somebody else, and so are not in the code of lrpe."""

from collections.abc import Iterator, Mapping
from typing import Any

from lrpe.attention.feature_map import FEATURE_MAPS
from lrpe.encodings.config import ANGLES, BASES, MATRICES, OUTSIDE
from lrpe.encodings.family import BASELINES, FAMILY
from lrpe.models.configuration import LrpeConfig


def plugins(config: LrpeConfig) -> list[str]:
    """The names in a configuration whose makers are not of lrpe, such as "the basis 'wavelet' of my_package.bases"."""
    found = {
        f"the {kind} {name!r} of {made.__module__}"
        for kind, name, makers in _named(config)
        if (made := makers.get(name)) is not None and made.__module__.partition(".")[0] != "lrpe"
    }
    return sorted(found)


def _named(config: LrpeConfig) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """(kind, name, register) of everything that a configuration chooses by a name of ours."""
    yield "feature map", config.feature_map, FEATURE_MAPS
    for layer in range(config.num_hidden_layers):
        choice, encoding = config.of_layer("encoding", layer), config.layer_encoding(layer)
        yield "encoding", choice if isinstance(choice, str) else choice.get("name"), FAMILY | BASELINES
        yield "basis", encoding.basis, BASES
        yield "position matrix", encoding.matrix, MATRICES | OUTSIDE
        yield "kind of angles", encoding.angles, ANGLES
