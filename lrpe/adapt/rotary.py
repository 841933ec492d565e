"""The rotary encoding of a transformers model, as the member of the family that it is."""

from typing import Any

from torch import Tensor, nn

from lrpe.adapt.projections import SelfAttention
from lrpe.encodings.angles import Angles
from lrpe.encodings.basis import OddEven
from lrpe.encodings.encoding import Encoding
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.errors import require

CHANGING = ("dynamic", "longrope")  # their angles depend on the length of the text at hand


class NoRotary(nn.Module):
    """Takes the place of cosines and sines that no layer needs any more."""

    def forward(self, *args: Any, **kwargs: Any) -> None:
        return None


def rotary_of(model: Any) -> Any:
    """The module that computes a model's cosines and sines; None if its positions are absolute."""
    return getattr(model.base_model, "rotary_emb", None)


def rotary_encoding(rotary: Any, attention: SelfAttention) -> Encoding:
    """Type 2 with a model's own angles, to be learned, in its own layout: x[k] is turned with x[w/2 + k], w ≤ d.

    Angles that are scaled for longer texts (linear, yarn, llama3) are taken as they come; what multiplies cosines and
    sines then multiplies the scores.
    """
    kind, angles, factor = _read(rotary, getattr(attention.module, "layer_type", None))
    require(
        kind not in CHANGING,
        f"An encoding has one set of angles; those of rope_type={kind!r} change with the length of the text. Load the "
        "model with another rope_type, such as 'yarn' or 'linear'.",
    )
    turned, head_dim = 2 * len(angles), attention.head_dim
    require(
        factor == 1 or turned == head_dim,
        f"A factor of the cosines is one of the scores only if all features turn; got attention_factor={factor}, "
        f"{turned} of {head_dim} features turned.",
    )
    encoding = Encoding(OddEven(head_dim, turned), Orthogonal(head_dim, Angles(angles, learned=True)))
    encoding.score_scale = factor**2
    return encoding


def _read(rotary: Any, layer_type: str | None) -> tuple[str, Tensor, float]:
    """The kind, the angles and the factor of the cosines of a layer; in Gemma 3 each type of layer has its own."""
    if not isinstance(rotary.rope_type, dict):
        return rotary.rope_type, rotary.inv_freq, float(rotary.attention_scaling)
    angles, factor = (getattr(rotary, f"{layer_type}_{name}") for name in ("inv_freq", "attention_scaling"))
    return rotary.rope_type[layer_type], angles, float(factor)
