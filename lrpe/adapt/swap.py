"""Our encodings or our attention in the layers of a transformers model, as a record says."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from transformers import PreTrainedModel

from lrpe.adapt.encoded import Encoded, encode_instead
from lrpe.adapt.projections import SelfAttention, read_attention
from lrpe.adapt.rotary import NoRotary, rotary_encoding, rotary_of
from lrpe.adapt.stand_in import (
    IMPLEMENTATION,
    Fitted,
    FittedLinearAttention,
    FittedSoftmaxAttention,
    StandIn,
    read_call,
)
from lrpe.attention.layer import choose_encoding
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import Encoding, PositionalEncoding
from lrpe.encodings.family import configure_for_heads
from lrpe.errors import LrpeError, require, unknown_name

KINDS: dict[str, type[Fitted]] = {"linear": FittedLinearAttention, "softmax": FittedSoftmaxAttention}


def check_untouched(model: PreTrainedModel) -> None:
    """Refuse a model that was replaced before, whole or in part."""
    replaced = any(isinstance(module, StandIn | Encoded) for module in model.modules())
    require(
        not replaced,
        f"The attention of this {type(model).__name__} was replaced already. Start from the model as it was loaded; "
        "layers=[...] of replace_attention chooses several at once.",
    )


def swap_rotary(model: PreTrainedModel, encoding: Any) -> None:
    """Put an encoding into every layer that has a rotary one; all else of its attention stays."""
    found = [(layer, attention) for layer, attention in enumerate(read_attention(model)) if attention.turns]
    require(
        rotary_of(model) is not None,
        f"{type(model).__name__} has no rotary encoding to replace: its positions are absolute. replace_attention "
        "gives it relative ones beside them.",
    )
    made = [_check_member(_choose(encoding, model, attention, layer), attention) for layer, attention in found]
    for (_, attention), chosen in zip(found, made, strict=True):
        encode_instead(attention, chosen)
    own_config(model)
    model.base_model.rotary_emb = NoRotary()


def swap_attention(
    model: PreTrainedModel, kind: str, encoding: Any, layers: Sequence[int] | None, choices: dict[str, Any]
) -> None:
    """Put attention of ours into these layers, or into all of them."""
    fitted = _choose_kind(kind, choices)
    found = list(enumerate(read_attention(model)))
    chosen = found if layers is None else [found[layer] for layer in _check_layers(layers, len(found))]
    made = [_fit(fitted, model, replaced, encoding, layer, choices) for layer, replaced in chosen]
    for (_, replaced), stand_in in zip(chosen, made, strict=True):
        replaced.give_way_to(stand_in)
    own_config(model)
    model.base_model.register_forward_pre_hook(read_call, with_kwargs=True)
    if len(chosen) == len(found):
        model.set_attn_implementation(IMPLEMENTATION)  # which spares transformers a mask of n × n
        if rotary_of(model) is not None:
            model.base_model.rotary_emb = NoRotary()


def own_config(model: PreTrainedModel) -> None:
    """A configuration of its own for the model and its parts: other models may share the one it was built from."""
    shared, own = model.config, copy.deepcopy(model.config)
    module: Any
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = own


def _check_layers(layers: Sequence[int], count: int) -> list[int]:
    whole = isinstance(layers, Sequence) and all(isinstance(n, int) and not isinstance(n, bool) for n in layers)
    require(
        whole and 0 < len(set(layers)) == len(layers) and all(0 <= layer < count for layer in layers),
        f"layers are numbers of this model's layers, from 0 to {count - 1}, each once; got layers={layers!r}.",
    )
    return sorted(layers)


def _choose_kind(attention: str, choices: dict[str, Any]) -> type[Fitted]:
    if attention not in KINDS:
        raise unknown_name("attention", attention, KINDS)
    for name in choices:
        if name not in KINDS[attention].CHOICES:
            raise unknown_name(f"choice of {attention} attention", name, KINDS[attention].CHOICES)
    return KINDS[attention]


def _fit(
    kind: type[Fitted], model: PreTrainedModel, replaced: SelfAttention, encoding: Any, layer: int, choices: dict
) -> StandIn:
    """Our attention for a layer, with the very weights of the model's own, on their device and in their dtype."""
    like = replaced.projections.o_proj.weight
    chosen = _choose(encoding, model, replaced, layer)
    with like.device:
        ours = kind.like(replaced, encoding=chosen, **copy.deepcopy(choices)).to(like.dtype)
    replaced.projections.give_to(ours)
    return StandIn(ours.train(replaced.module.training), layer)


def _choose(choice: Any, model: PreTrainedModel, attention: SelfAttention, layer: int) -> PositionalEncoding:
    """The encoding of a layer, on its device."""
    with attention.projections.q_proj.weight.device:
        if choice is None and rotary_of(model) is not None and attention.turns:
            return rotary_encoding(rotary_of(model), attention)
        config = _configure_layer("none" if choice is None else choice, attention)
        return replace(config, seed=(config.seed or 0) + layer).build()


def _configure_layer(choice: Any, attention: SelfAttention) -> EncodingConfig:
    if isinstance(choice, str):
        return configure_for_heads(choice, attention.head_dim, attention.key_heads)
    if not isinstance(choice, EncodingConfig):
        raise LrpeError(
            f"Every layer builds an encoding of its own, from a name or an EncodingConfig; got {type(choice).__name__}."
        )
    return choice


def _check_member(encoding: PositionalEncoding, attention: SelfAttention) -> Encoding:
    """An encoding that the attention of a model can take: there is no decay in it, no noise and no grid."""
    choose_encoding(encoding, attention.head_dim, attention.key_heads)
    if not isinstance(encoding, Encoding) or encoding.decay is not None or encoding.axes != 1:
        raise LrpeError(
            "A model's own attention takes a member of the family along a sequence, without a decay; got "
            f"{encoding}. replace_attention takes any along a sequence."
        )
    return encoding
