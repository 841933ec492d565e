"""Replace the rotary encoding or the attention of a loaded transformers model by ours, keeping its weights."""

from collections.abc import Sequence
from typing import Any, TypeVar

from transformers import PreTrainedModel

from lrpe.adapt.attention import StandIn
from lrpe.adapt.rotary import Encoded
from lrpe.adapt.saving import Replacement, remember
from lrpe.encodings.config import EncodingConfig
from lrpe.errors import require

Model = TypeVar("Model", bound=PreTrainedModel)


def replace_rotary(model: Model, encoding: str | EncodingConfig | None = None) -> Model:
    """Replace the rotary encoding of a model by ours, one per layer, in place; the rest of its attention stays.

    Args:
        model: Llama-, GPT-NeoX- or Gemma-like; layers without a rotary encoding, as in SmolLM3, stay without one.
        encoding: a name or an EncodingConfig, whose seed increases by one per layer; None is Type 2 with the model's
            own angles, now learned, so that the model's outputs do not change.

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
    """Replace the self-attention of a model by ours, in place, keeping its weights.

    Args:
        model: Llama-, GPT-NeoX-, Gemma-, GPT-2- or BERT-like; all of its attention must be in ``projections.READERS``.
        attention: "linear", or "softmax", which with encoding=None does not change the model's outputs.
        encoding: a name or an EncodingConfig, whose seed increases by one per layer; None keeps the model's rotary
            encoding as Type 2 with learned angles, or adds none to absolute positions.
        layers: the numbers of the layers to replace, from 0; all of them if None.
        choices: further arguments of LinearAttention (feature_map, normalizer, decay, dropout) or of SoftmaxAttention
            (decay, dropout, attention_dropout, scale); each layer gets its own copy.

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
    """Refuse a model in which a part was replaced before."""
    replaced = any(isinstance(module, StandIn | Encoded) for module in model.modules())
    require(
        not replaced,
        f"The attention of this {type(model).__name__} was replaced already. Load the model again, and replace all "
        "layers in one call: layers=[...] of replace_attention.",
    )
