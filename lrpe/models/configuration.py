"""LrpeConfig: a whole model in words and numbers, as Hugging Face's config.json."""

import copy
import math
from collections.abc import Callable
from typing import Any

from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

from lrpe.attention.decay import spread_decay
from lrpe.attention.feature_map import FEATURE_MAPS
from lrpe.attention.normalizer import NORMALIZERS
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.family import configure_for_heads
from lrpe.errors import LrpeError, require, unknown_name

FORMAT = 1
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}  # format -> its fields as those of the next one

CHOICES: dict[str, tuple[Any, ...]] = {
    "feature_map": tuple(FEATURE_MAPS),
    "normalizer": NORMALIZERS,
    "absolute_positions": (None, "sinusoidal", "learned"),
    "position_layout": ("sequence", "grid", "diagonal"),
    "norm": ("rms", "layer", "batch"),
    "norm_position": ("pre", "post"),
    "pooling": ("mean", "last", "first"),
}
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
SIZES += ("intermediate_size", "max_position_embeddings", "patch_size", "num_channels", "num_labels")
OPTIONAL_SIZES = ("image_size", "classifier_hidden_size")
SWITCHES = ("causal", "embedding_norm", "gated", "attention_bias", "qkv_bias", "mlp_bias", "tie_word_embeddings")
RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "drop_path_rate")
OF_THE_LIBRARY = {
    "model_type",
    "auto_map",
    "name_or_path",
    "_name_or_path",
    "_commit_hash",
    "torch_dtype",
    "num_labels",
}
OF_THE_LIBRARY |= {"attn_implementation", "output_attentions", "experts_implementation", "quantization_config"}


class LrpeConfig(PreTrainedConfig):
    """The configuration of every model here; the default is a linear language model that needs no further choosing.

    Args:
        vocab_size: tokens that there are.
        hidden_size, num_hidden_layers, num_attention_heads, intermediate_size: of the trunk.
        num_key_value_heads: heads of keys and values, a divisor of the heads; as many if None.
        head_dim: hidden_size / num_attention_heads if None.
        attention: "linear" or "softmax"; a list has one for each layer.
        encoding: a name such as "type2" or "fourier*unitary"; a name with changes, {"name": "type2", "base": 500.0}; or
            the fields of an EncodingConfig. Layers draw different Householder vectors and permutations from its seed.
            A list has one for each layer; an entry's own seed is taken as it is.
        feature_map, normalizer: of linear attention; see docs/choosing.md.
        decay: "spread" (one r a head from some tokens to thousands), a list of one r a key head, or None.
        causal: whether a token sees itself and those before it alone; None is what the model's head needs.
        absolute_positions: None, "sinusoidal" or "learned" (of ``max_position_embeddings``), added to the embeddings.
        position_layout: of images: "sequence" (row by row), "grid" (row and column), "diagonal" (row + column).
        norm: "rms", "layer" or "batch", which ignores padding.
        norm_position: "pre" or "post".
        embedding_norm: whether the embeddings are normalised.
        hidden_act: of the feed-forward layer, by its name in transformers.
        gated: whether that layer is gated: act(gate) · up.
        attention_bias, mlp_bias: of the projections; qkv_bias: of queries, keys and values, as attention_bias if None.
        tie_word_embeddings: whether the output layer is the embedding.
        hidden_dropout_prob, attention_probs_dropout_prob, drop_path_rate: rates; the second is of softmax attention.
        pooling: of classifiers: "mean", "last" or "first" (an image gets a class token in front).
        classifier_hidden_size: of a tanh layer before the labels; none if None.
        image_size, patch_size, num_channels: of an image model, which takes patches for tokens; None for text.
        norm_eps, initializer_range, seed: as they say; the seed is that of the encodings.
        format: of this configuration; older ones are read, newer ones refused.

    >>> LrpeConfig(encoding="type1", num_hidden_layers=2).layer_encoding(1).matrix
    'unitary'
    """

    model_type = "lrpe"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(
        self,
        vocab_size: int = 50257,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        num_key_value_heads: int | None = None,
        head_dim: int | None = None,
        intermediate_size: int = 2048,
        max_position_embeddings: int = 2048,
        attention: str | list[str] = "linear",
        encoding: str | dict[str, Any] | list[str | dict[str, Any]] = "type2",
        feature_map: str = "elu+1",
        normalizer: str = "plain",
        decay: str | list[float] | None = "spread",
        causal: bool | None = None,
        absolute_positions: str | None = None,
        position_layout: str = "sequence",
        norm: str = "layer",
        norm_position: str = "pre",
        norm_eps: float = 1e-5,
        embedding_norm: bool = False,
        hidden_act: str = "silu",
        gated: bool = True,
        attention_bias: bool = False,
        qkv_bias: bool | None = None,
        mlp_bias: bool = False,
        tie_word_embeddings: bool = True,
        hidden_dropout_prob: float = 0.0,
        attention_probs_dropout_prob: float = 0.0,
        drop_path_rate: float = 0.0,
        pooling: str = "mean",
        classifier_hidden_size: int | None = None,
        image_size: int | None = None,
        patch_size: int = 16,
        num_channels: int = 3,
        initializer_range: float = 0.02,
        seed: int = 0,
        use_cache: bool = True,
        pad_token_id: int | None = None,
        bos_token_id: int | None = None,
        eos_token_id: int | list[int] | None = None,
        format: int = FORMAT,
        **kwargs: Any,
    ):
        fields = {name: value for name, value in locals().items() if name not in ("self", "kwargs", "__class__")}
        for name, value in fields.items():
            setattr(self, name, value)
        self.num_key_value_heads = num_attention_heads if num_key_value_heads is None else num_key_value_heads
        self.head_dim = self.default_head_dim() if head_dim is None else head_dim
        self.attention, self.encoding = (list(x) if isinstance(x, tuple) else x for x in (attention, encoding))
        known = set(fields) | set(PreTrainedConfig().to_dict()) | OF_THE_LIBRARY
        for name in kwargs:
            if name not in known and not name.startswith("_"):
                raise unknown_name("field of LrpeConfig", name, sorted(fields))
        shared = ("tie_word_embeddings", "pad_token_id", "bos_token_id", "eos_token_id")  # older bases set these too
        super().__init__(**kwargs | {name: fields[name] for name in shared})
        self.check()

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any):
        found = super().from_dict(upgrade(config_dict), **kwargs)
        (found[0] if isinstance(found, tuple) else found).check()
        return found

    def check(self) -> None:
        """Every law that the fields obey, before anything is built from them."""
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise unknown_name(name, str(getattr(self, name)), [str(choice) for choice in allowed])
        self.check_numbers()
        if self.hidden_act not in ACT2FN:
            raise unknown_name("activation", self.hidden_act, list(ACT2FN))
        require(
            self.num_attention_heads % self.num_key_value_heads == 0,
            f"Every key head serves as many queries, so num_key_value_heads divides num_attention_heads; got "
            f"{self.num_key_value_heads} and {self.num_attention_heads}.",
        )
        require(
            self.image_size is not None or self.position_layout == "sequence",
            f"Tokens of text stand in a sequence; position_layout={self.position_layout!r} is of images (image_size).",
        )
        require(
            self.image_size is None or self.image_size % self.patch_size == 0,
            f"An image is cut into whole patches; got image_size={self.image_size}, patch_size={self.patch_size}.",
        )
        for layer in range(self.num_hidden_layers):
            self.check_layer(layer)

    def check_numbers(self) -> None:
        for name in (*SIZES, *(name for name in OPTIONAL_SIZES if getattr(self, name) is not None)):
            require(
                is_whole(getattr(self, name), 1),
                f"{name} is a whole number of 1 or more; got {name}={getattr(self, name)!r}.",
            )
        for name in RATES:
            value = getattr(self, name)
            require(is_number(value) and 0 <= value < 1, f"{name} is a rate in [0, 1); got {value!r}.")
        for name in ("norm_eps", "initializer_range"):
            value = getattr(self, name)
            require(is_number(value) and value > 0, f"{name} is a number above 0; got {value!r}.")
        for name in SWITCHES:
            allowed = (True, False, None) if name in ("causal", "qkv_bias") else (True, False)
            require(getattr(self, name) in allowed, f"{name} is one of {allowed}; got {getattr(self, name)!r}.")
        require(is_whole(self.seed, 0), f"A seed is a whole number of 0 or more; got seed={self.seed!r}.")
        for name in ("pad_token_id", "bos_token_id"):
            value = getattr(self, name)
            known = value is None or (is_whole(value, 0) and value < self.vocab_size)
            require(known, f"{name} is a token below vocab_size={self.vocab_size}; got {value!r}.")

    def default_head_dim(self) -> int:
        width, heads = self.hidden_size, self.num_attention_heads
        if not (is_whole(width, 1) and is_whole(heads, 1)):
            return 1  # and the check of sizes says what is wrong
        require(
            width % heads == 0,
            f"head_dim is hidden_size / num_attention_heads unless it is given; got hidden_size={width!r}, "
            f"num_attention_heads={heads!r}.",
        )
        return width // heads

    def check_layer(self, layer: int) -> None:
        kind, encoding, decay = self.layer_attention(layer), self.layer_encoding(layer), self.layer_decay()
        if kind not in ("linear", "softmax"):
            raise unknown_name("kind of attention", str(kind), ["linear", "softmax"])
        require(
            decay is None or encoding.decay is None,
            f"The encoding of layer {layer} brings its own decay; pass decay=None beside it.",
        )
        require(
            (decay is None and encoding.decay is None) or encoding.axes == 1,
            "A decay counts steps along a sequence; position_layout='grid' has two axes. Pass decay=None.",
        )

    @property
    def position_axes(self) -> int:
        return 2 if self.position_layout == "grid" else 1

    def layer_attention(self, layer: int) -> str:
        return self.of_layer("attention", layer)

    def layer_encoding(self, layer: int) -> EncodingConfig:
        """The encoding of one layer."""
        choice = self.of_layer("encoding", layer)
        require(
            isinstance(choice, str | dict),
            f"An encoding is a name, a dictionary, or a list with one of these for each layer; got {choice!r}.",
        )
        fields: dict[str, Any] = {"name": choice} if isinstance(choice, str) else dict(choice)
        name, axes = fields.pop("name", None), self.position_axes
        given: dict[str, Any] = {"head_dim": self.head_dim, "axes": axes} | fields
        given["length"] = fields.get("length") or self.max_position_embeddings
        if name != "per":  # PermuteFormer's layers are alike
            as_given = isinstance(self.encoding, list) and "seed" in fields
            given["seed"] = fields.get("seed", self.seed) + (0 if as_given else 1000 * layer)
        if name is None:
            found = EncodingConfig.from_dict(given)
        else:
            found = configure_for_heads(name, key_heads=self.num_key_value_heads, **given)
        require(
            found.head_dim == self.head_dim and found.axes == axes,
            f"The encoding of layer {layer} has head_dim={self.head_dim} and axes={axes} in this model; got "
            f"head_dim={found.head_dim}, axes={found.axes}.",
        )
        return found

    def layer_decay(self) -> list[float] | None:
        """r of each key head, or None."""
        if self.decay == "spread":
            return spread_decay(self.num_key_value_heads)
        if isinstance(self.decay, str):
            raise unknown_name("decay", self.decay, ["spread", "a list of numbers", "None"])
        if self.decay is not None:
            require(
                len(self.decay) == self.num_key_value_heads and all(0 < r <= 1 for r in self.decay),
                f"A decay has one r in (0, 1] for each of {self.num_key_value_heads} key heads; got {self.decay}.",
            )
        return self.decay

    def of_layer(self, name: str, layer: int) -> Any:
        value = getattr(self, name)
        if not isinstance(value, list):
            return value
        require(
            len(value) == self.num_hidden_layers,
            f"A list of {name} has one for each of {self.num_hidden_layers} layers; got {len(value)}.",
        )
        return value[layer]

    def settled(self, causal: bool) -> "LrpeConfig":
        """This configuration with ``causal`` decided: as it is given, else a copy as the head asks."""
        if self.causal is not None:
            return self
        settled = copy.deepcopy(self)
        settled.causal = causal
        return settled


def is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def upgrade(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a configuration of any older format as those of this one."""
    if not isinstance(values, dict):
        raise LrpeError(f"A configuration is a JSON object; got {str(values)[:80]!r}.")
    kind, version = values.get("model_type", "lrpe"), values.get("format", FORMAT)
    if kind != "lrpe":
        raise LrpeError(f"This configuration is of model_type {kind!r}, not 'lrpe'. Load it by AutoConfig.")
    require(
        isinstance(version, int) and version <= FORMAT,
        f"This lrpe reads configurations up to format {FORMAT}; got format={version!r}. A newer lrpe wrote it.",
    )
    for number in range(version, FORMAT):
        require(number in UPGRADES, f"Configurations have format 1 or more; got format={number}.")
        values = UPGRADES[number](values) | {"format": number + 1}
    return values
