"""What every attention layer has: heads, their projections, and an encoding of queries and keys."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lrpe.arguments import check_count, check_rate, check_real
from lrpe.attention.feature_map import FeatureMap, feature_width
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.encodings.family import configure_for_heads
from lrpe.errors import LrpeError, require


class _Recommended(NamedTuple):
    encoding: str = "type2"
    feature_map: str = "elu+1"
    normalizer: str = "plain"
    decay: str = "spread"


RECOMMENDED = _Recommended()


class Heads(NamedTuple):
    """Sizes of an attention layer."""

    width: int
    heads: int
    key_heads: int
    head_dim: int
    value_dim: int

    @classmethod
    def of(cls, width: int, heads: int, key_heads: int | None, head_dim: int | None, value_dim: int | None) -> "Heads":
        key_heads = heads if key_heads is None else key_heads
        for name, size in (("width", width), ("heads", heads), ("key_heads", key_heads)):
            check_count(name, size)
        require(
            heads % key_heads == 0,
            f"Every key head serves as many queries, so key_heads divides heads; got heads={heads}, "
            f"key_heads={key_heads}.",
        )
        require(
            head_dim is not None or width % heads == 0,
            f"head_dim is width / heads unless it is given; got width={width}, heads={heads}.",
        )
        head_dim = width // heads if head_dim is None else head_dim
        value_dim = head_dim if value_dim is None else value_dim
        check_count("head_dim", head_dim)
        check_count("value_dim", value_dim)
        return cls(width, heads, key_heads, head_dim, value_dim)


class AttentionLayer(nn.Module):
    """Projections to heads and back."""

    def __init__(self, sizes: Heads, bias: bool, qkv_bias: bool | None, dropout: float):
        super().__init__()
        self.sizes = sizes
        qkv_bias = bias if qkv_bias is None else qkv_bias
        for name, value in (("bias", bias), ("qkv_bias", qkv_bias)):
            require(isinstance(value, bool), lambda name=name, value=value: f"{name} is True or False; got {value!r}.")
        check_rate("dropout", dropout)
        self.q_proj = nn.Linear(sizes.width, sizes.heads * sizes.head_dim, bias=qkv_bias)
        self.k_proj = nn.Linear(sizes.width, sizes.key_heads * sizes.head_dim, bias=qkv_bias)
        self.v_proj = nn.Linear(sizes.width, sizes.key_heads * sizes.value_dim, bias=qkv_bias)
        self.o_proj = nn.Linear(sizes.heads * sizes.value_dim, sizes.width, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def check_inputs(self, x: Tensor, context: Tensor) -> None:
        width = self.sizes.width
        check_real("x", x)
        check_real("context", context, x)
        require(
            x.ndim == context.ndim == 3
            and x.shape[-1] == context.shape[-1] == width
            and x.shape[0] == context.shape[0],  # not len(x), which an exporter takes for a constant
            lambda: (
                f"The input, and its context if it has one, are (batch, n, width) with width={width}; "
                f"got {tuple(x.shape)} and {tuple(context.shape)}."
            ),
        )
        self.check_weights(x, context)

    def check_weights(self, x: Tensor, context: Tensor) -> None:
        """Check that inputs fit the weights, if those are plain: quantised and offloaded ones are fitted when used."""
        weight = self.q_proj.weight
        if not weight.is_floating_point() or weight.device.type == "meta":
            return
        require(x.device == weight.device, lambda: f"x must be on the layer's {weight.device}; got {x.device}.")
        require(
            x.dtype == context.dtype == weight.dtype or torch.is_autocast_enabled(x.device.type),
            lambda: (
                f"The input has the dtype of the layer's weights, {weight.dtype}; got {x.dtype} and {context.dtype}. "
                "Convert one of them, or use torch.autocast."
            ),
        )

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, n, width) -> queries (batch, heads, n, head_dim), and keys and values of the context."""
        heads, key_heads = self.sizes.heads, self.sizes.key_heads
        q = _split_heads(self.q_proj(x), heads)
        return q, _split_heads(self.k_proj(context), key_heads), _split_heads(self.v_proj(context), key_heads)

    def join(self, heads: Tensor) -> Tensor:
        """(batch, heads, n, value_dim) -> (batch, n, width)."""
        return self.dropout(self.o_proj(heads.transpose(1, 2).flatten(2)))


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, n, heads · d) -> (batch, heads, n, d)."""
    batch, n, width = x.shape
    return x.view(batch, n, heads, width // heads).transpose(1, 2)


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """x (batch, ..., n, d) with zeros where the mask (batch, n) says padding: whatever stands there, NaN too, is gone.

    Nothing of it reaches a sum, where 0 · NaN would spread, nor a gradient.
    """
    if mask is None:
        return x
    return torch.where(mask.view(mask.shape[0], *(1,) * (x.ndim - 3), mask.shape[1], 1), x, 0)


def zero_both_paddings(
    x: Tensor, context: Tensor, mask: Tensor | None, context_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """x and its context without their padding; one tensor if they are one."""
    shown = zero_padding(x, mask)
    return shown, shown if context is x else zero_padding(context, context_mask)


EncodingChoice = str | EncodingConfig | PositionalEncoding


def configure_features(choice: Any, phi: FeatureMap, head_dim: int, key_heads: int) -> EncodingConfig:
    """The configuration behind a name, for vectors of φ's width if it acts after φ; a configuration as it is."""
    if isinstance(choice, EncodingConfig):
        return choice
    if not isinstance(choice, str):
        raise LrpeError(f"An encoding is a name, an EncodingConfig or an encoding; got {type(choice).__name__}.")
    config = configure_for_heads(choice, head_dim, key_heads)
    width = head_dim if config.acts == "before" else feature_width(phi, head_dim)
    return config if width == head_dim else configure_for_heads(choice, width, key_heads)


def choose_encoding(choice: EncodingChoice, dim: int, key_heads: int) -> PositionalEncoding:
    """An encoding of vectors of size ``dim`` by name or configuration, or the encoding itself."""
    if isinstance(choice, str):
        choice = configure_for_heads(choice, dim, key_heads)
    encoding = choice.build() if isinstance(choice, EncodingConfig) else choice
    if not isinstance(encoding, PositionalEncoding):
        raise LrpeError(f"An encoding is a name, an EncodingConfig or an encoding; got {type(encoding).__name__}.")
    require(
        encoding.head_dim == dim,
        f"The encoding acts on vectors of size {dim} here; it was made for head_dim={encoding.head_dim}.",
    )
    require(
        encoding.heads in (None, key_heads),
        f"An encoding with heads of its own has one for each of the {key_heads} key heads; got {encoding.heads}.",
    )
    return encoding
