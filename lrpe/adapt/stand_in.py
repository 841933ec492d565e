"""Our attention layers, behind the call that a transformers layer makes."""

import inspect
from typing import Any, cast

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.masking_utils import find_packed_sequence_indices

from lrpe.adapt.projections import SelfAttention
from lrpe.attention.linear_attention import LinearAttention
from lrpe.attention.softmax_attention import SoftmaxAttention
from lrpe.errors import LrpeError, require
from lrpe.models.cache import StateLayer

IMPLEMENTATION = "lrpe"  # the name under which transformers knows that our layers take a mask of (batch, n)
PADDING = "lrpe_padding"  # the argument by which our layers get that mask beside layers that need another one


class WithNorms(nn.Module):
    """An attention layer that may normalise queries and keys head by head, as Qwen3's does."""

    q_norm: nn.Module
    k_norm: nn.Module

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().project(x, context)  # pyright: ignore[reportAttributeAccessIssue]
        return self.q_norm(q), self.k_norm(k), v


class FittedLinearAttention(WithNorms, LinearAttention):
    """Linear attention with the weights of a model; a window, a cap or a dropout of scores has no place in it."""

    CHOICES = ("feature_map", "normalizer", "decay", "dropout")

    @classmethod
    def like(cls, replaced: SelfAttention, **choices: Any) -> "FittedLinearAttention":
        return cls(**sizes(replaced), **{"decay": None, "dropout": replaced.dropout} | choices)


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
        require(
            replaced.softcap is None,
            f"Our softmax attention takes scores as they are, and this model caps them at {replaced.softcap}. Load it "
            "with attn_logit_softcapping=None to drop the cap, or replace its rotary encoding alone to keep it.",
        )
        own = {"decay": None, "dropout": replaced.dropout, "attention_dropout": replaced.attention_dropout}
        return cls(**sizes(replaced), **own | {"scale": replaced.module.scaling} | choices)


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
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        layer_past: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        mask = kwargs.get(PADDING, attention_mask)
        mask = None if mask is None else newest(mask, hidden_states.shape[1])
        cache = layer_past if past_key_values is None else past_key_values
        if cache is None:
            packed = None if mask is not None or position_ids is None else find_packed_sequence_indices(position_ids)
            return self.attention(hidden_states, positions=position_ids, mask=mask, sequences=packed), None
        memory = memory_in(cache, self.layer)
        out, state = self.attention.prefill(hidden_states, cast(Any, memory.state), position_ids, mask)
        memory.keep(state, hidden_states.shape[1])
        return out, None


def memory_in(cache: Any, layer: int) -> StateLayer:
    """What a cache remembers for a layer: a state of ours, put there while that place is still empty."""
    cache.layers.extend(StateLayer() for _ in range(len(cache.layers), layer + 1))
    found = cache.layers[layer]
    if not isinstance(found, StateLayer):
        require(
            type(found) in (DynamicLayer, DynamicSlidingWindowLayer) and not cache.offloading,
            f"A replaced attention keeps a state of its own in a DynamicCache; layer {layer} of this cache is a "
            f"{type(found).__name__}{', offloaded' if cache.offloading else ''}. Leave cache_implementation out.",
        )
        require(
            found.get_seq_length() == 0,
            f"Layer {layer} of this cache holds keys and values of another attention; pass a new cache, or none.",
        )
        cache.layers[layer] = StateLayer()
    return cache.layers[layer]


def read_call(trunk: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A hook before a trunk's forward: refuse what our layers do not have, and pass the padding mask on to them.

    If all layers are ours, transformers makes no other mask (see ``padding_mask``), and nothing need be passed.
    """
    given = inspect.signature(trunk.forward).bind_partial(*args, **kwargs)
    asked = {**given.arguments, **given.arguments.get("kwargs", {})}
    require(
        not asked.get("output_attentions"),
        "A replaced attention never forms its weights, so there are none to put out: output_attentions=False.",
    )
    if trunk.config._attn_implementation == IMPLEMENTATION:
        return args, kwargs
    return args, kwargs | {PADDING: asked.get("attention_mask")}


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
    raise LrpeError(f'attn_implementation="{IMPLEMENTATION}" is for models whose attention lrpe.adapt has replaced.')


AttentionInterface.register(IMPLEMENTATION, refuse)
AttentionMaskInterface.register(IMPLEMENTATION, padding_mask)
