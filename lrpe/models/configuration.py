"""LrpeConfig: everything that defines a model, as Hugging Face's config.json stores it."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from lrpe.attention.choices import Member, complete, member_of
from lrpe.errors import LrpeError, require, unknown_name
from lrpe.models.layer_choices import LayerChoices
from lrpe.models.schema import FIELDS, check_fields, is_whole, read_object, shorten

FORMAT = 3


def _rename_half_rotation(values: dict[str, Any]) -> dict[str, Any]:
    """Format 1 called the listing's half rotation "mixed", which is now another encoding of positions on a grid."""

    def rename(choice: Any) -> Any:
        if isinstance(choice, list):
            return [rename(each) for each in choice]
        if isinstance(choice, dict) and choice.get("name") == "mixed":
            return choice | {"name": "half-rotated"}
        return "half-rotated" if choice == "mixed" else choice

    return values | {"encoding": rename(values["encoding"])} if "encoding" in values else values


def _name_earlier_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Until format 2 the default was Type 2 with the spread decay, without an output gate or a convolution."""
    named = {"encoding": "type2", "output_gate": None, "convolution": None} | values
    return {"decay": member_of(named["encoding"]).decay} | named


# format -> its fields as those of the next one
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _rename_half_rotation, 2: _name_earlier_defaults}

_OF_LAYERS = ("attention", "encoding", "decay", "eos_token_id")  # a tuple is accepted for a list
_COMPLETED = ("feature_map", "normalizer", "decay")  # "default" depends on the encoding
# What "default" means for the rest: along a sequence, and where patches lie on a grid or a diagonal of it
_ALONG_A_SEQUENCE = {"encoding": "selective", "convolution": 4}, Member(decay="gated")
_ON_A_GRID = {"encoding": "type2", "convolution": None}, Member(decay=None)
_FOLLOWING = ("num_key_value_heads", "head_dim")  # None is derived from the other sizes
_MOST_PARAMETERS = 2**40  # 4 TB in float32: more is a mistake in the sizes, refused before memory is allocated


class LrpeConfig(LayerChoices, PreTrainedConfig):
    """The configuration of every model here; the defaults give a linear language model.

    Args:
        vocab_size: number of tokens in the vocabulary.
        hidden_size, num_hidden_layers, num_attention_heads: width, depth and query heads of the trunk.
        intermediate_size: inner width of the feed-forward layers.
        num_key_value_heads: number of key and value heads, a divisor of num_attention_heads and its value if None.
        head_dim: features per head; hidden_size / num_attention_heads if None.
        attention: "linear" or "softmax"; a pattern of them that is repeated over the layers, such as
            "linear*3+softmax"; or a list with one of them per layer.
        encoding: a name such as "type2" or "fourier*unitary"; a name with changes, {"name": "type2", "base": 500.0};
            the fields of an EncodingConfig; or a list with one of these per layer. Layers draw different Householder
            vectors and permutations from one seed; a seed inside a list entry is used unchanged. "default" becomes
            "selective", or "type2" where positions are not a sequence.
        feature_map, normalizer: names of the parts of linear attention; see docs/choosing.md. "default" becomes the
            part that the named encoding was published with, or else the recommended one: elu+1, plain, and decay
            "gated", or None where positions are not a sequence.
        decay: "default", "spread" (one r per key head, with ranges from a few tokens to thousands), "tnl"
            (TransNormerLLM's, by layer and head), "retnet", "learned" (one r per head), "gated" (one r per head and
            token), "mamba3" (the same by the Δ of that encoding), a list of r, or None.
        output_gate: "sigmoid" or "silu", multiplies the joined heads of attention by that function of a projection of
            their input; or None.
        convolution: kernel size of a short convolution along the tokens on q, k and v; None for no convolution. It is
            causal in causal models and centred in others, and needs position_layout="sequence"; there "default"
            becomes 4, and elsewhere None.
        convolution_activation: "silu" after the convolution, or None.
        causal: whether a token sees only itself and earlier tokens; None uses the default of the model class.
        absolute_positions: None, "sinusoidal" or "learned" (``max_position_embeddings`` of them), added to embeddings.
        position_layout: positions of image patches: "sequence" (row by row), "grid" (row and column) or "diagonal"
            (row + column); "sequence" for text.
        norm: "rms", "layer" or "batch"; batch norm ignores padding.
        norm_position: "pre" or "post", before each layer or after its residual sum.
        embedding_norm: whether the embeddings are normalised.
        hidden_act: activation of the feed-forward layers, by its name in transformers.
        gated: whether feed-forward layers are gated, act(gate(x)) · up(x).
        attention_bias, mlp_bias: whether these projections have biases.
        qkv_bias: whether queries, keys and values have biases; attention_bias if None.
        tie_word_embeddings: whether the output layer shares the weights of the embedding.
        hidden_dropout_prob, drop_path_rate: rates of dropout and of stochastic depth.
        attention_probs_dropout_prob: dropout rate of the attention weights, in softmax attention only.
        pooling: tokens that a classifier reads: "mean", "last" or "first" (for images a class token).
        classifier_hidden_size: width of a tanh layer before the labels; None for no such layer.
        image_size, patch_size, num_channels: of images, whose patches are the tokens; image_size is None for text.
        norm_eps, initializer_range: epsilon of the norms, standard deviation of initial weights.
        seed: seed of the encodings.
        format: version of the configuration format; older ones are upgraded, newer ones refused.

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
        encoding: str | dict[str, Any] | list[str | dict[str, Any]] = "default",
        feature_map: str = "default",
        normalizer: str = "default",
        decay: str | list[float] | None = "default",
        output_gate: str | None = "silu",
        convolution: int | str | None = "default",
        convolution_activation: str | None = None,
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
        given = {name: value for name, value in locals().items() if name not in ("self", "kwargs", "__class__")}
        given |= {name: list(given[name]) for name in _OF_LAYERS if isinstance(given[name], tuple)}
        given |= complete_fields(given)
        for name in kwargs:
            if name not in FIELDS and not name.startswith("_"):
                raise unknown_name("field of LrpeConfig", name, sorted(given))
        check_fields({name: v for name, v in (given | kwargs).items() if v is not None or name not in _FOLLOWING})
        for name, value in given.items():
            setattr(self, name, value)
        self.num_key_value_heads = num_attention_heads if num_key_value_heads is None else num_key_value_heads
        self.head_dim = self._default_head_dim() if head_dim is None else head_dim
        shared = ("tie_word_embeddings", "pad_token_id", "bos_token_id", "eos_token_id")  # older bases set these too
        super().__init__(**kwargs | {name: given[name] for name in shared})
        self.check()

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any):
        """Read fields of this format or an older one, and check them together with the changes in ``kwargs``."""
        found = super().from_dict(upgrade_fields(config_dict), **kwargs)
        (found[0] if isinstance(found, tuple) else found).check()
        return found

    @classmethod
    def _dict_from_json_file(cls, json_file: Any) -> dict[str, Any]:
        """Read config.json; LrpeError names a damaged file, which transformers' own error does not."""
        return cls._decode_special_floats(read_object(Path(json_file)))

    def check(self) -> None:
        """Raise ``LrpeError`` unless a model can be built from these fields."""
        names = [name for name in FIELDS if name != "torch_dtype"]  # dtype's old name; reading it warns
        check_fields({name: getattr(self, name) for name in names if hasattr(self, name)})
        self._check_sizes()
        self._check_tokens()
        self._check_images()
        last = self.num_hidden_layers - 1
        several = isinstance(self.attention, list) or isinstance(self.encoding, list)
        for layer in range(last + 1) if several else sorted({0, last}):  # the last has the largest seed
            self.check_layer(layer)

    def _check_sizes(self) -> None:
        require(
            self.num_attention_heads % self.num_key_value_heads == 0,
            f"num_key_value_heads must divide num_attention_heads; got num_key_value_heads={self.num_key_value_heads}, "
            f"num_attention_heads={self.num_attention_heads}.",
        )
        count = self.count_weights()
        require(
            count <= _MOST_PARAMETERS,
            f"A model must have at most 2^40 weights; these sizes give about {float(count):.1e}. Make them smaller.",
        )
        require(
            self.absolute_positions != "sinusoidal" or self.hidden_size % (2 if self.image_size is None else 4) == 0,
            "absolute_positions='sinusoidal' needs hidden_size to be even, or for images a multiple of 4; got "
            f"hidden_size={self.hidden_size}.",
        )

    def count_weights(self) -> int:
        """Estimate the number of weights of a model of these sizes."""
        heads, width = self.num_attention_heads + self.num_key_value_heads, self.hidden_size
        gate = 0 if self.output_gate is None else self.num_attention_heads * self.head_dim * width
        extras = gate + (heads + self.num_key_value_heads) * self.head_dim * (self.convolution or 0)
        layer = extras + 2 * heads * self.head_dim * width + 3 * width * self.intermediate_size + self.head_dim**2
        patches = 0 if self.image_size is None else (self.image_size // self.patch_size) ** 2
        ends = self.vocab_size + self.num_channels * self.patch_size**2 + (self.num_labels or 0) + patches
        learned = self.max_position_embeddings if self.absolute_positions == "learned" else 0
        return self.num_hidden_layers * layer + width * (ends + learned + 4 * (self.classifier_hidden_size or 0))

    def _check_tokens(self) -> None:
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            value = getattr(self, name)
            for token in value if isinstance(value, list) else [value]:
                known = token is None or token < self.vocab_size
                require(known, f"{name} must be below vocab_size={self.vocab_size}; got {name}={value}.")

    def _check_images(self) -> None:
        require(
            self.image_size is not None or self.position_layout == "sequence",
            f"position_layout must be 'sequence' for text; got position_layout={self.position_layout!r}. Set "
            "image_size for images.",
        )
        require(
            self.image_size is None or self.image_size % self.patch_size == 0,
            f"image_size must be a multiple of patch_size; got image_size={self.image_size}, "
            f"patch_size={self.patch_size}.",
        )

    def _default_head_dim(self) -> int:
        width, heads = self.hidden_size, self.num_attention_heads
        require(
            width % heads == 0,
            f"Without head_dim, num_attention_heads must divide hidden_size; got hidden_size={width!r}, "
            f"num_attention_heads={heads!r}.",
        )
        return width // heads

    def settled(self, causal: bool) -> "LrpeConfig":
        """Return this configuration if ``causal`` is set, else a copy with the given value."""
        if self.causal is not None:
            return self
        settled = copy.deepcopy(self)
        settled.causal = causal
        return settled


def complete_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that may be "default", with that replaced by what the encoding and the positions call for."""
    defaults, others = _ALONG_A_SEQUENCE if values["position_layout"] == "sequence" else _ON_A_GRID
    found = {name: default if _is_default(values[name]) else values[name] for name, default in defaults.items()}
    feature_map, normalizer, decay = (values[name] for name in _COMPLETED)
    chosen = complete(found["encoding"], feature_map, normalizer, decay, others)
    return found | dict(zip(_COMPLETED, chosen, strict=True))


def _is_default(value: Any) -> bool:
    return isinstance(value, str) and value == "default"


def upgrade_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Convert the fields of an older format to this one."""
    if not isinstance(values, dict):
        raise LrpeError(f"A configuration must be a JSON object; got {shorten(values)}.")
    kind, version = values.get("model_type", "lrpe"), values.get("format", FORMAT)
    if kind != "lrpe":
        raise LrpeError(f"model_type must be 'lrpe'; got model_type={shorten(kind)}. Load it with AutoConfig.")
    require(
        is_whole(version) and version <= FORMAT,
        f"format must be at most {FORMAT} for this version of lrpe; got format={shorten(version)}. Upgrade lrpe.",
    )
    for number in range(version, FORMAT):
        require(number in UPGRADES, f"format must be at least 1; got format={number}.")
        values = UPGRADES[number](values) | {"format": number + 1}
    return values
