"""Bring your own model: our encodings or our attention in a loaded transformers model, with its weights."""

import copy
from dataclasses import replace
from typing import Any, TypeVar

from transformers import PreTrainedModel

from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import Encoding, PositionalEncoding
from lrpe.encodings.family import configure
from lrpe.errors import LrpeError, require, unknown_name
from lrpe.models.encoded import encode_instead
from lrpe.models.projections import SelfAttention, read_attention
from lrpe.models.rotary import let_positions_through, rotary_encoding, rotary_of
from lrpe.models.stand_in import IMPLEMENTATION, Linear, Softmax, StandIn

Model = TypeVar("Model", bound=PreTrainedModel)
KINDS: dict[str, type[Linear] | type[Softmax]] = {"linear": Linear, "softmax": Softmax}


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
    made = [choose(encoding, model, attention, layer) for layer, attention in enumerate(found)]
    for attention, chosen in zip(found, made, strict=True):
        if not isinstance(chosen, Encoding) or chosen.decay is not None or chosen.axes != 1:
            raise LrpeError(
                f"A model's own attention takes a member of the family along a sequence, without a decay; got "
                f"{encoding!r}. replace_attention takes any."
            )
        encode_instead(attention, chosen)
    let_positions_through(model)
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
    made = []
    for layer, replaced in enumerate(found):
        chosen = choose(encoding, model, replaced, layer)
        like = replaced.projections.o_proj.weight
        with like.device:
            ours = kind.like(replaced, encoding=chosen, **copy.deepcopy(choices))
        made.append(ours.to(like.dtype).train(replaced.module.training))
    for layer, (replaced, ours) in enumerate(zip(found, made, strict=True)):
        replaced.projections.give_to(ours)
        replaced.give_way_to(StandIn(ours, layer))
    let_positions_through(model)
    model.set_attn_implementation(IMPLEMENTATION)
    return model


def choose_kind(attention: str, choices: dict[str, Any]) -> type[Linear] | type[Softmax]:
    if attention not in KINDS:
        raise unknown_name("attention", attention, KINDS)
    for name in choices:
        if name not in KINDS[attention].CHOICES:
            raise unknown_name(f"choice of {attention} attention", name, KINDS[attention].CHOICES)
    return KINDS[attention]


def choose(choice: Any, model: PreTrainedModel, attention: SelfAttention, layer: int) -> PositionalEncoding:
    """The encoding of a layer, on its device."""
    with attention.projections.q_proj.weight.device:
        if choice is None and rotary_of(model) is not None:
            return rotary_encoding(rotary_of(model), attention.head_dim)
        config = configure_layer("none" if choice is None else choice, attention)
        return replace(config, seed=config.seed + layer).build()


def configure_layer(choice: Any, attention: SelfAttention) -> EncodingConfig:
    if isinstance(choice, str):
        per_head = {"heads": attention.key_heads} if choice in ("per", "spe") else {}
        return configure(choice, attention.head_dim, **per_head)
    if not isinstance(choice, EncodingConfig):
        raise LrpeError(
            f"Every layer builds an encoding of its own, from a name or an EncodingConfig; got {type(choice).__name__}."
        )
    return choice
