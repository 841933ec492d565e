"""Our attention layers, behind the call that a transformers layer makes."""

from typing import Any, cast

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from lrpe.attention.linear_attention import LinearAttention
from lrpe.attention.softmax_attention import SoftmaxAttention
from lrpe.errors import LrpeError, require
from lrpe.models.cache import StateLayer
from lrpe.replacement.projections import SelfAttention
from lrpe.replacement.rotary import Place

IMPLEMENTATION = "lrpe"  # the name under which transformers knows that our layers take a mask of (batch, n)


class WithNorms(nn.Module):
    """An attention layer that may normalise queries and keys head by head, as Qwen3's does."""

    q_norm: nn.Module
    k_norm: nn.Module

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().project(x, context)  # pyright: ignore[reportAttributeAccessIssue]
        return self.q_norm(q), self.k_norm(k), v


class FittedLinearAttention(WithNorms, LinearAttention):
    """Linear attention with the weights of a model; a window or a dropout of scores has no place in it."""

    CHOICES = ("feature_map", "normalizer", "decay", "dropout")

    @classmethod
    def like(cls, replaced: SelfAttention, **choices: Any) -> "FittedLinearAttention":
        return cls(**sizes(replaced), **choices)


class FittedSoftmaxAttention(WithNorms, SoftmaxAttention):
    """Softmax attention that computes what the model's own did."""

    CHOICES = ("decay", "dropout", "attention_dropout", "scale")

    @classmethod
    def like(cls, replaced: SelfAttention, **choices: Any) -> "FittedSoftmaxAttention":
        require(
            replaced.window is None,
            f"Our softmax attention sees the whole past, and this model a window of {replaced.window} tokens. Load it "
            "with sliding_window=None to drop the window, or replace its rotary encoding alone to keep it.",
        )
        module = replaced.module
        dropout = module.attention_dropout if hasattr(module, "attention_dropout") else module.dropout.p
        return cls(**sizes(replaced), **{"attention_dropout": dropout, "scale": module.scaling} | choices)


Fitted = FittedLinearAttention | FittedSoftmaxAttention


def sizes(replaced: SelfAttention) -> dict[str, Any]:
    return {
        "width": replaced.width,
        "heads": replaced.heads,
        "key_heads": replaced.key_heads,
        "head_dim": replaced.head_dim,
        "summation": "causal" if replaced.causal else "bidirectional",
    }


class StandIn(nn.Module):
    """Calls ``attention`` with what a transformers layer says of its tokens: positions, padding, a cache."""

    def __init__(self, attention: Fitted, layer: int):
        super().__init__()
        self.attention, self.layer = attention, layer

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_embeddings: Place | None = None,
        past_key_values: Any = None,
        layer_past: Any = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        mask = None if attention_mask is None else newest(attention_mask, hidden_states.shape[1])
        positions, sequences = position_embeddings or (None, None)
        cache = layer_past if past_key_values is None else past_key_values
        if cache is None:
            packed = sequences if mask is None else None
            return self.attention(hidden_states, positions=positions, mask=mask, sequences=packed), None
        memory = memory_in(cache, self.layer)
        out, state = self.attention.prefill(hidden_states, cast(Any, memory.state), positions, mask)
        memory.keep(state, hidden_states.shape[1])
        return out, None


def memory_in(cache: Any, layer: int) -> StateLayer:
    """What a cache remembers for a layer: a state of ours, put there while that place is still empty."""
    cache.layers.extend(StateLayer() for _ in range(len(cache.layers), layer + 1))
    if not isinstance(cache.layers[layer], StateLayer):
        require(
            cache.layers[layer].get_seq_length() == 0,
            f"Layer {layer} of this cache holds keys and values of another attention; pass a new cache, or none.",
        )
        cache.layers[layer] = StateLayer()
    return cache.layers[layer]


def newest(mask: Tensor, n: int) -> Tensor:
    """The mask of the last n tokens: a cache's mask speaks of those before them as well."""
    require(
        mask.ndim == 2,
        lambda: (
            f"Our layers take a padding mask of (batch, n); got {tuple(mask.shape)}. Pass such a mask to the model, "
            f'and keep its attn_implementation="{IMPLEMENTATION}".'
        ),
    )
    return mask[:, -n:]


def padding_mask(*args: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor | None:
    """What transformers makes of a padding mask for our layers: nothing. They know their order without it."""
    return attention_mask


def refuse(*args: Any, **kwargs: Any) -> Any:
    raise LrpeError(
        f'attn_implementation="{IMPLEMENTATION}" is for models whose attention lrpe.replacement has replaced.'
    )


AttentionInterface.register(IMPLEMENTATION, refuse)
AttentionMaskInterface.register(IMPLEMENTATION, padding_mask)
