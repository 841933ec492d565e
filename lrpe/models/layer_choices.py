"""What each layer of a configuration chooses: its kind of attention, its encoding and its decay."""

import re
from dataclasses import fields
from typing import Any

from lrpe.attention.convolution import choose_convolution
from lrpe.attention.decay import DECAYS, tnl_decay
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.family import configure_for_heads
from lrpe.errors import require, unknown_name
from lrpe.models.schema import is_whole, shorten

_KINDS = ("linear", "softmax")
_ENCODING_FIELDS = [field.name for field in fields(EncodingConfig)]


class LayerChoices:
    """A mixin of ``LrpeConfig``, whose fields it reads: one value for all layers, or a list with one per layer."""

    num_hidden_layers: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    attention: str | list[str]
    encoding: str | dict[str, Any] | list[str | dict[str, Any]]
    decay: str | list[float] | None
    convolution: int | None
    convolution_activation: str | None
    position_layout: str
    seed: int

    def check_layer(self, layer: int) -> None:
        """Raise ``LrpeError`` unless the choices of one layer fit together."""
        kind, encoding, decay = self.layer_attention(layer), self.layer_encoding(layer), self.layer_decay(layer)
        if kind not in _KINDS:
            raise unknown_name("kind of attention", kind, _KINDS)
        require(
            decay is None or encoding.decay is None,
            f"The encoding of layer {layer} has its own decay; pass decay=None with it.",
        )
        require(
            (decay is None and encoding.decay is None) or self.position_layout == "sequence",
            f"A decay needs position_layout='sequence'; got position_layout={self.position_layout!r}. Pass decay=None "
            "and an encoding without a decay.",
        )
        require(
            self.convolution is None or self.position_layout == "sequence",
            f"A convolution needs position_layout='sequence'; got position_layout={self.position_layout!r}. Pass "
            "convolution=None.",
        )
        choose_convolution(self.convolution, self.convolution_activation, (1, 1, 1), causal=True, axes=1)
        encoding.build()  # building checks the fields together

    @property
    def position_axes(self) -> int:
        return 2 if self.position_layout == "grid" else 1

    def layer_attention(self, layer: int) -> str:
        """Return "linear" or "softmax"."""
        if isinstance(self.attention, str):
            return read_pattern(self.attention, self.num_hidden_layers)[layer]
        return self.of_layer("attention", layer)

    def layer_encoding(self, layer: int) -> EncodingConfig:
        """Return the encoding of one layer."""
        choice = self.of_layer("encoding", layer)
        changes: dict[str, Any] = {"name": choice} if isinstance(choice, str) else dict(choice)
        name, axes = changes.pop("name", None), self.position_axes
        require(isinstance(name, str | None), f"The name of an encoding must be a string; got name={shorten(name)}.")
        self._check_encoding_fields(changes)
        given: dict[str, Any] = {"head_dim": self.head_dim, "axes": axes} | changes
        given["length"] = self.max_position_embeddings if changes.get("length") is None else changes["length"]
        if name != "per":  # all layers of PermuteFormer share their permutations
            given["seed"] = self._layer_seed(changes, layer)
        if name is None:
            found = EncodingConfig.from_dict(given)
        else:
            found = configure_for_heads(name, key_heads=self.num_key_value_heads, **given)
        require(
            found.head_dim == self.head_dim and found.axes == axes,
            f"The encoding of layer {layer} must have head_dim={self.head_dim} and axes={axes}, as the model; got "
            f"head_dim={found.head_dim}, axes={found.axes}.",
        )
        return found

    def _check_encoding_fields(self, changes: dict[str, Any]) -> None:
        for field in changes:
            if field not in _ENCODING_FIELDS:
                raise unknown_name("field of EncodingConfig", field, _ENCODING_FIELDS)
        heads = changes.get("heads")
        require(
            heads in (None, self.num_key_value_heads),
            f"The heads of an encoding must be None or num_key_value_heads={self.num_key_value_heads}; got "
            f"heads={shorten(heads)}.",
        )

    def _layer_seed(self, changes: dict[str, Any], layer: int) -> Any:
        """Return a seed that differs between layers; a seed inside a list entry is used unchanged."""
        own = changes.get("seed")
        seed = self.seed if own is None else own
        as_given = isinstance(self.encoding, list) and own is not None
        return seed if as_given or not is_whole(seed) else seed + 1000 * layer

    def layer_decay(self, layer: int) -> str | list[float] | None:
        """Return r for each key head of one layer, "learned" or "gated", or None."""
        heads = self.num_key_value_heads
        if isinstance(self.decay, str):
            if self.decay not in DECAYS:
                raise unknown_name("decay", self.decay, [*DECAYS, "a list of numbers", "None"])
            return tnl_decay(heads, layer, self.num_hidden_layers) if self.decay == "tnl" else self.decay
        if self.decay is not None:
            require(
                len(self.decay) == heads and all(0 < r <= 1 for r in self.decay),
                f"decay must have one r in (0, 1] per key head, {heads} in all; got {self.decay}.",
            )
        return self.decay

    def of_layer(self, name: str, layer: int) -> Any:
        value = getattr(self, name)
        if not isinstance(value, list):
            return value
        require(
            len(value) == self.num_hidden_layers,
            f"{name} must have one entry per layer, {self.num_hidden_layers} in all; got {len(value)} entries.",
        )
        return value[layer]


def read_pattern(pattern: str, layers: int) -> list[str]:
    """Return the kind of attention of each layer; a pattern is repeated, and its last repetition may be cut.

    Raises:
        LrpeError: the pattern is not made of kinds and counts, or is longer than the model.

    >>> read_pattern("linear*3+softmax", layers=6)
    ['linear', 'linear', 'linear', 'softmax', 'linear', 'linear']
    """
    kinds: list[str] = []
    for part in pattern.split("+"):
        found = re.fullmatch(r"\s*([^*\s]*)\s*(?:\*\s*([0-9]{1,5})\s*)?", part)
        name, count = (part.strip(), 1) if found is None else (found[1], int(found[2] or 1))
        if name not in _KINDS or count == 0:
            known = [*_KINDS, "a pattern of them with counts of 1 or more, such as 'linear*3+softmax'"]
            raise unknown_name("kind of attention", part, known)
        kinds += [name] * count
    require(
        len(set(kinds)) == 1 or len(kinds) <= layers,
        f"attention={pattern!r} describes {len(kinds)} layers, so num_hidden_layers must be at least that; got "
        f"num_hidden_layers={layers}. Shorten the pattern, or pass a list with one entry per layer.",
    )
    return [kinds[layer % len(kinds)] for layer in range(layers)]
