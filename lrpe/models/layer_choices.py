"""What each layer of a configuration chooses: its kind of attention, its encoding and its decay."""

from dataclasses import fields
from typing import Any

from lrpe.attention.decay import DECAYS, tnl_decay
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.family import configure_for_heads
from lrpe.errors import require, unknown_name
from lrpe.models.schema import is_whole, shorten

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
    position_layout: str
    seed: int

    def check_layer(self, layer: int) -> None:
        """Raise ``LrpeError`` unless the choices of one layer fit together."""
        kind, encoding, decay = self.layer_attention(layer), self.layer_encoding(layer), self.layer_decay(layer)
        if kind not in ("linear", "softmax"):
            raise unknown_name("kind of attention", kind, ["linear", "softmax"])
        require(
            decay is None or encoding.decay is None,
            f"The encoding of layer {layer} has its own decay; pass decay=None with it.",
        )
        require(
            (decay is None and encoding.decay is None) or self.position_layout == "sequence",
            f"A decay needs position_layout='sequence'; got position_layout={self.position_layout!r}. Pass decay=None "
            "and an encoding without a decay.",
        )
        encoding.build()  # building checks the fields together

    @property
    def position_axes(self) -> int:
        return 2 if self.position_layout == "grid" else 1

    def layer_attention(self, layer: int) -> str:
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
