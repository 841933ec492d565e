"""Bring your own model: our encodings or our attention in a loaded transformers model, with its weights."""

import copy
from dataclasses import replace
from typing import Any, TypeVar

from transformers import PreTrainedModel

from lrpe.attention.layer import choose_encoding
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import Encoding, PositionalEncoding
from lrpe.encodings.family import configure_for_heads
from lrpe.errors import LrpeError, require, unknown_name
from lrpe.replacement.encoded import encode_instead
from lrpe.replacement.projections import SelfAttention, read_attention
from lrpe.replacement.rotary import PackedPositions, Positions, pass_on, rotary_encoding, rotary_of
from lrpe.replacement.stand_in import IMPLEMENTATION, Fitted, FittedLinearAttention, FittedSoftmaxAttention, StandIn

Model = TypeVar("Model", bound=PreTrainedModel)
KINDS: dict[str, type[Fitted]] = {"linear": FittedLinearAttention, "softmax": FittedSoftmaxAttention}


def replace_rotary(model: Model, encoding: str | EncodingConfig | None = None) -> Model:
    """Replace the rotary encoding of a model by ours, one a layer, in place; all else of its attention stays.

    With no encoding named it is Type 2 with the model's own angles, which are learned from here on: the model computes
    what it did. Another one is a name or an EncodingConfig, and its seed grows by one from layer to layer.
    """
    found = read_attention(model)
    require(
        rotary_of(model) is not None,
        f"{type(model).__name__} has no rotary encoding to replace: its positions are absolute. replace_attention "
        "gives it relative ones beside them.",
    )
    made = [check_member(choose(encoding, model, attention, layer), attention) for layer, attention in enumerate(found)]
    for attention, chosen in zip(found, made, strict=True):
        encode_instead(attention, chosen)
    pass_on(model, Positions())
    return model


def replace_attention(
    model: Model, attention: str = "linear", encoding: str | EncodingConfig | None = None, **choices: Any
) -> Model:
    """Replace every self-attention of a model by ours, with the weights that it has, in place.

    Args:
        model: Llama-, GPT-NeoX- or BERT-like, with all of its attention among ``projections.READERS``.
        attention: "linear", or "softmax", which computes what the model did before.
        encoding: a name or an EncodingConfig, whose seed grows by one from layer to layer; None keeps the model's own
            rotary encoding as Type 2 with learned angles, or no encoding beside absolute positions.
        choices: further arguments of LinearAttention (feature_map, normalizer, decay, dropout) or of SoftmaxAttention
            (decay, dropout, attention_dropout, scale); every layer gets a copy of its own.
    """
    kind = choose_kind(attention, choices)
    found = read_attention(model)
    made = [fit(kind, model, replaced, encoding, layer, choices) for layer, replaced in enumerate(found)]
    for replaced, stand_in in zip(found, made, strict=True):
        replaced.give_way_to(stand_in)
    pass_on(model, PackedPositions())
    own_config(model)
    model.set_attn_implementation(IMPLEMENTATION)
    return model


def own_config(model: PreTrainedModel) -> None:
    """A configuration of its own for the model and its parts: other models may share the one it was built from."""
    shared, own = model.config, copy.deepcopy(model.config)
    module: Any
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = own


def choose_kind(attention: str, choices: dict[str, Any]) -> type[Fitted]:
    if attention not in KINDS:
        raise unknown_name("attention", attention, KINDS)
    for name in choices:
        if name not in KINDS[attention].CHOICES:
            raise unknown_name(f"choice of {attention} attention", name, KINDS[attention].CHOICES)
    return KINDS[attention]


def fit(
    kind: type[Fitted], model: PreTrainedModel, replaced: SelfAttention, encoding: Any, layer: int, choices: dict
) -> StandIn:
    """Our attention for a layer, with the very weights of the model's own, on their device and in their dtype."""
    like = replaced.projections.o_proj.weight
    chosen = choose(encoding, model, replaced, layer)
    with like.device:
        ours = kind.like(replaced, encoding=chosen, **copy.deepcopy(choices)).to(like.dtype)
    replaced.projections.give_to(ours)
    return StandIn(ours.train(replaced.module.training), layer)


def choose(choice: Any, model: PreTrainedModel, attention: SelfAttention, layer: int) -> PositionalEncoding:
    """The encoding of a layer, on its device."""
    with attention.projections.q_proj.weight.device:
        if choice is None and rotary_of(model) is not None:
            return rotary_encoding(rotary_of(model), attention.head_dim)
        config = configure_layer("none" if choice is None else choice, attention)
        return replace(config, seed=(config.seed or 0) + layer).build()


def configure_layer(choice: Any, attention: SelfAttention) -> EncodingConfig:
    if isinstance(choice, str):
        return configure_for_heads(choice, attention.head_dim, attention.key_heads)
    if not isinstance(choice, EncodingConfig):
        raise LrpeError(
            f"Every layer builds an encoding of its own, from a name or an EncodingConfig; got {type(choice).__name__}."
        )
    return choice


def check_member(encoding: PositionalEncoding, attention: SelfAttention) -> Encoding:
    """An encoding that the attention of a model can take: there is no decay in it, no noise and no grid."""
    choose_encoding(encoding, attention.head_dim, attention.key_heads)
    if not isinstance(encoding, Encoding) or encoding.decay is not None or encoding.axes != 1:
        raise LrpeError(
            "A model's own attention takes a member of the family along a sequence, without a decay; got "
            f"{encoding}. replace_attention takes any along a sequence."
        )
    return encoding
