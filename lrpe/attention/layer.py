"""What every attention layer has: heads, their projections, and an encoding of queries and keys."""

from typing import NamedTuple

from torch import Tensor, nn

from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.encodings.family import configure_for_heads
from lrpe.errors import LrpeError, require


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
        require(
            heads >= 1 and key_heads >= 1 and heads % key_heads == 0,
            f"Every key head serves as many queries, so key_heads divides heads; got heads={heads}, "
            f"key_heads={key_heads}.",
        )
        require(
            head_dim is not None or width % heads == 0,
            f"head_dim is width / heads unless it is given; got width={width}, heads={heads}.",
        )
        head_dim = width // heads if head_dim is None else head_dim
        value_dim = head_dim if value_dim is None else value_dim
        require(
            min(width, head_dim, value_dim) >= 1,
            f"Sizes are 1 or more; got width={width}, head_dim={head_dim}, value_dim={value_dim}.",
        )
        return cls(width, heads, key_heads, head_dim, value_dim)


class AttentionLayer(nn.Module):
    """Projections to heads and back."""

    def __init__(self, sizes: Heads, bias: bool, qkv_bias: bool | None, dropout: float):
        super().__init__()
        self.sizes = sizes
        qkv_bias = bias if qkv_bias is None else qkv_bias
        self.q_proj = nn.Linear(sizes.width, sizes.heads * sizes.head_dim, bias=qkv_bias)
        self.k_proj = nn.Linear(sizes.width, sizes.key_heads * sizes.head_dim, bias=qkv_bias)
        self.v_proj = nn.Linear(sizes.width, sizes.key_heads * sizes.value_dim, bias=qkv_bias)
        self.o_proj = nn.Linear(sizes.heads * sizes.value_dim, sizes.width, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def check_inputs(self, x: Tensor, context: Tensor) -> None:
        width = self.sizes.width
        require(
            x.ndim == context.ndim == 3
            and x.shape[-1] == context.shape[-1] == width
            and x.shape[0] == context.shape[0],  # not len(x), which an exporter takes for a constant
            lambda: (
                f"The input, and its context if it has one, are (batch, n, width) with width={width}; "
                f"got {tuple(x.shape)} and {tuple(context.shape)}."
            ),
        )
        require(x.device == context.device, f"The context lives where x does; got {context.device} and {x.device}.")

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, n, width) -> queries (batch, heads, n, head_dim), and keys and values of the context."""
        heads, key_heads = self.sizes.heads, self.sizes.key_heads
        q = in_heads(self.q_proj(x), heads)
        return q, in_heads(self.k_proj(context), key_heads), in_heads(self.v_proj(context), key_heads)

    def join(self, heads: Tensor) -> Tensor:
        """(batch, heads, n, value_dim) -> (batch, n, width)."""
        return self.dropout(self.o_proj(heads.transpose(1, 2).flatten(2)))


def in_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, n, heads · d) -> (batch, heads, n, d)."""
    batch, n, width = x.shape
    return x.view(batch, n, heads, width // heads).transpose(1, 2)


def choose_encoding(choice: str | EncodingConfig | PositionalEncoding, dim: int, key_heads: int) -> PositionalEncoding:
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
