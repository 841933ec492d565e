"""Bring your own model: our encodings or our attention in a loaded transformers model, with its weights."""

from collections.abc import Sequence
from typing import Any, TypeVar

from transformers import PreTrainedModel

from lrpe.adapt.attention import StandIn
from lrpe.adapt.record import Replacement
from lrpe.adapt.rotary import Encoded
from lrpe.adapt.saving import remember
from lrpe.encodings.config import EncodingConfig
from lrpe.errors import require

Model = TypeVar("Model", bound=PreTrainedModel)


def replace_rotary(model: Model, encoding: str | EncodingConfig | None = None) -> Model:
    """Replace the rotary encoding of a model by ours, one per layer, in place; all else of its attention stays.

    Args:
        model: Llama-, GPT-NeoX- or Gemma-like; layers without a rotary encoding, as SmolLM3 has some, stay without.
        encoding: a name or an EncodingConfig, whose seed grows by one from layer to layer; None is Type 2 with the
            model's own angles, which are learned from here on, so that the model computes what it did.

    Returns:
        The model.
    """
    _check_untouched(model)
    return _replace(model, Replacement("rotary", encoding=encoding))


def replace_attention(
    model: Model,
    attention: str = "linear",
    encoding: str | EncodingConfig | None = None,
    layers: Sequence[int] | None = None,
    **choices: Any,
) -> Model:
    """Replace self-attention of a model by ours, with the weights that it has, in place.

    Args:
        model: Llama-, GPT-NeoX-, Gemma-, GPT-2- or BERT-like, with all of its attention among ``projections.READERS``.
        attention: "linear", or "softmax", which computes what the model did before.
        encoding: a name or an EncodingConfig, whose seed grows by one from layer to layer; None keeps the model's own
            rotary encoding as Type 2 with learned angles, or no encoding beside absolute positions.
        layers: the numbers of the layers to replace, from 0; all of them if None.
        choices: further arguments of LinearAttention (feature_map, normalizer, decay, dropout) or of SoftmaxAttention
            (decay, dropout, attention_dropout, scale); every layer gets a copy of its own.

    Returns:
        The model.
    """
    _check_untouched(model)
    chosen = list(layers) if isinstance(layers, Sequence) and not isinstance(layers, str) else layers
    return _replace(model, Replacement("attention", attention, encoding, chosen, choices))  # type: ignore[arg-type]


def _replace(model: Model, replacement: Replacement) -> Model:
    replacement.apply(model)
    remember(model, replacement)
    return model


def _check_untouched(model: PreTrainedModel) -> None:
    """Refuse a model that was replaced before, whole or in part."""
    replaced = any(isinstance(module, StandIn | Encoded) for module in model.modules())
    require(
        not replaced,
        f"The attention of this {type(model).__name__} was replaced already. Load the model again, and replace all "
        "layers in one call: layers=[...] of replace_attention.",
    )
