"""Replace the self-attention of a transformers model by our layers, called as the model calls its own."""

import copy
import inspect
from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.masking_utils import find_packed_sequence_indices

from lrpe.adapt.projections import SelfAttention, own_config, read_attention
from lrpe.adapt.rotary import NoRotary, choose_for_layer, rotary_of
from lrpe.attention.decay import tnl_decay
from lrpe.attention.linear import LinearAttention
from lrpe.attention.softmax import SoftmaxAttention
from lrpe.errors import LrpeError, require, unknown_name
from lrpe.models.cache import StateLayer

_IMPLEMENTATION = "lrpe"  # registered with transformers, so that it passes our layers a mask of (batch, n)
_PADDING = "lrpe_padding"  # the argument that passes that mask where other layers need an n × n one


class WithNorms(nn.Module):
    """A mixin for attention layers that normalise queries and keys per head, as in Qwen3."""

    q_norm: nn.Module
    k_norm: nn.Module

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().project(x, context)  # pyright: ignore[reportAttributeAccessIssue]
        return self.q_norm(q), self.k_norm(k), v


class FittedLinearAttention(WithNorms, LinearAttention):
    """Linear attention with a model's weights; it forms no scores, so it has no window, softcap or score dropout."""

    CHOICES = ("feature_map", "normalizer", "decay", "dropout")

    @classmethod
    def like(cls, replaced: SelfAttention, **choices: Any) -> "FittedLinearAttention":
        return cls(**_read_sizes(replaced), **{"decay": None, "dropout": replaced.dropout} | choices)


class FittedSoftmaxAttention(WithNorms, SoftmaxAttention):
    """Softmax attention with a model's weights, which computes what the model's own did."""

    CHOICES = ("decay", "dropout", "attention_dropout", "scale")

    @classmethod
    def like(cls, replaced: SelfAttention, **choices: Any) -> "FittedSoftmaxAttention":
        require(
            replaced.window is None,
            f"sliding_window must be None for our softmax attention; got a window of {replaced.window} tokens. Load "
            "the model with sliding_window=None to drop the window, or use replace_rotary to keep it.",
        )
        require(
            replaced.softcap is None,
            f"attn_logit_softcapping must be None for our softmax attention; got {replaced.softcap}. Load the model "
            "with attn_logit_softcapping=None to drop the cap, or use replace_rotary to keep it.",
        )
        own = {"decay": None, "dropout": replaced.dropout, "attention_dropout": replaced.attention_dropout}
        return cls(**_read_sizes(replaced), **own | {"scale": replaced.module.scaling} | choices)


Fitted = FittedLinearAttention | FittedSoftmaxAttention
_KINDS: dict[str, type[Fitted]] = {"linear": FittedLinearAttention, "softmax": FittedSoftmaxAttention}


def _read_sizes(replaced: SelfAttention) -> dict[str, Any]:
    return {
        "width": replaced.width,
        "heads": replaced.heads,
        "key_heads": replaced.key_heads,
        "head_dim": replaced.head_dim,
        "summation": "causal" if replaced.causal else "bidirectional",
    }


class StandIn(nn.Module):
    """Takes the arguments of a transformers attention; passes positions, padding mask and cache to ``attention``."""

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
        mask = kwargs.get(_PADDING, attention_mask)
        mask = None if mask is None else _mask_of_newest(mask, hidden_states.shape[1])
        cache = layer_past if past_key_values is None else past_key_values
        if cache is None:
            packed = None if mask is not None or position_ids is None else find_packed_sequence_indices(position_ids)
            return self.attention(hidden_states, positions=position_ids, mask=mask, sequences=packed), None
        memory = _state_layer(cache, self.layer)
        out, state = self.attention.prefill(hidden_states, cast(Any, memory.state), position_ids, mask)
        memory.keep(state, hidden_states.shape[1])
        return out, None


def _state_layer(cache: Any, layer: int) -> StateLayer:
    """Return the StateLayer of a cache for one layer, replacing transformers' own while that is still empty."""
    cache.layers.extend(StateLayer() for _ in range(len(cache.layers), layer + 1))
    found = cache.layers[layer]
    if not isinstance(found, StateLayer):
        require(
            type(found) in (DynamicLayer, DynamicSlidingWindowLayer) and not cache.offloading,
            f"past_key_values must be a DynamicCache that is not offloaded; layer {layer} of this cache is a "
            f"{type(found).__name__}{', offloaded' if cache.offloading else ''}. Leave cache_implementation out.",
        )
        require(
            found.get_seq_length() == 0,
            f"past_key_values must be a new cache or one from this model; layer {layer} of it holds keys and values of "
            "another attention. Pass a new cache, or none.",
        )
        cache.layers[layer] = StateLayer()
    return cache.layers[layer]


def read_call(trunk: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Forward pre-hook of a trunk: refuse output_attentions, and pass the padding mask to our layers.

    If all layers are replaced, transformers makes no other mask (see ``_padding_mask``), and nothing need be passed.
    """
    given = inspect.signature(trunk.forward).bind_partial(*args, **kwargs)
    asked = {**given.arguments, **given.arguments.get("kwargs", {})}
    require(
        not asked.get("output_attentions"),
        "output_attentions must be False: a replaced attention never forms its weights; got output_attentions=True.",
    )
    if trunk.config._attn_implementation == _IMPLEMENTATION:
        return args, kwargs
    return args, kwargs | {_PADDING: asked.get("attention_mask")}


def _mask_of_newest(mask: Tensor, n: int) -> Tensor:
    """Return the mask of the last n tokens; with a cache, transformers' mask also covers the earlier ones."""
    require(
        mask.ndim == 2,
        lambda: (
            f"attention_mask must be a padding mask of shape (batch, n); got {tuple(mask.shape)}. Pass such a mask, "
            f'and keep the attn_implementation="{_IMPLEMENTATION}" of the model.'
        ),
    )
    return mask[:, -n:]


def _padding_mask(*args: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor | None:
    """Return the padding mask unchanged: our layers are causal without an n × n mask."""
    return attention_mask


def _refuse(*args: Any, **kwargs: Any) -> Any:
    raise LrpeError(
        f'attn_implementation="{_IMPLEMENTATION}" is for models whose attention was replaced. Leave it out.'
    )


def swap_attention(
    model: PreTrainedModel, kind: str, encoding: Any, layers: Sequence[int] | None, choices: dict[str, Any]
) -> None:
    """Replace the attention of these layers, or of all of them if ``layers`` is None."""
    fitted = _choose_kind(kind, choices)
    found = list(enumerate(read_attention(model)))
    chosen = found if layers is None else [found[layer] for layer in _check_layers(layers, len(found))]
    made = [
        _fit(fitted, model, replaced, encoding, layer, _choices_of_layer(choices, replaced, layer, len(found)))
        for layer, replaced in chosen
    ]
    for (_, replaced), stand_in in zip(chosen, made, strict=True):
        replaced.give_way_to(stand_in)
    own_config(model)
    model.base_model.register_forward_pre_hook(read_call, with_kwargs=True)
    if len(chosen) == len(found):
        model.set_attn_implementation(_IMPLEMENTATION)  # so that transformers builds no n × n mask
        if rotary_of(model) is not None:
            model.base_model.rotary_emb = NoRotary()


def _choices_of_layer(choices: dict[str, Any], replaced: SelfAttention, layer: int, layers: int) -> dict[str, Any]:
    """Return a layer's own copy of the choices; TransNormerLLM's decay depends on the number of the layer."""
    decay = choices.get("decay")
    own = {"decay": tnl_decay(replaced.key_heads, layer, layers)} if isinstance(decay, str) and decay == "tnl" else {}
    return copy.deepcopy(choices) | own


def _fit(
    kind: type[Fitted], model: PreTrainedModel, replaced: SelfAttention, encoding: Any, layer: int, choices: dict
) -> StandIn:
    """Build our attention for one layer, sharing the model's weights, on their device and in their dtype."""
    like = replaced.projections.o_proj.weight
    chosen = choose_for_layer(encoding, model, replaced, layer)
    with like.device:
        ours = kind.like(replaced, encoding=chosen, **choices).to(like.dtype)
    replaced.projections.give_to(ours)
    return StandIn(ours.train(replaced.module.training), layer)


def _choose_kind(attention: str, choices: dict[str, Any]) -> type[Fitted]:
    if attention not in _KINDS:
        raise unknown_name("attention", attention, _KINDS)
    for name in choices:
        if name not in _KINDS[attention].CHOICES:
            raise unknown_name(f"choice of {attention} attention", name, _KINDS[attention].CHOICES)
    return _KINDS[attention]


def _check_layers(layers: Sequence[int], count: int) -> list[int]:
    whole = isinstance(layers, Sequence) and all(isinstance(n, int) and not isinstance(n, bool) for n in layers)
    require(
        whole and 0 < len(set(layers)) == len(layers) and all(0 <= layer < count for layer in layers),
        f"layers must be numbers of this model's layers, from 0 to {count - 1}, each once; got layers={layers!r}.",
    )
    return sorted(layers)


AttentionInterface.register(_IMPLEMENTATION, _refuse)
AttentionMaskInterface.register(_IMPLEMENTATION, _padding_mask)
