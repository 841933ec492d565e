"""The rotary encoding of a transformers model, as the member of the family that it is."""

from typing import Any, NamedTuple

from torch import Tensor, nn
from transformers.masking_utils import find_packed_sequence_indices

from lrpe.encodings.angles import Angles
from lrpe.encodings.basis import OddEven
from lrpe.encodings.encoding import Encoding
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.errors import require

CHANGING = ("dynamic", "longrope")  # their angles depend on the length of the text at hand


class Place(NamedTuple):
    """Where tokens stand, (batch or 1, n) each: what a layer is told in place of cosines and sines."""

    positions: Tensor
    sequences: Tensor | None  # the packed sequence of each token; None if they are all of one, or if masks tell


class Positions(nn.Module):
    """Stands where a model computes cosines and sines, and hands the positions themselves on to the layers."""

    def forward(self, x: Tensor, position_ids: Tensor) -> Place:
        return Place(position_ids, None)


class PackedPositions(Positions):
    """Also says which sequence a token belongs to, as the model's own masks do: a gap begins another as well."""

    def forward(self, x: Tensor, position_ids: Tensor) -> Place:
        return Place(position_ids, find_packed_sequence_indices(position_ids))


def rotary_of(model: Any) -> Any:
    """The module that computes a model's cosines and sines; None if its positions are absolute."""
    return getattr(model.base_model, "rotary_emb", None)


def rotary_encoding(rotary: Any, head_dim: int) -> Encoding:
    """Type 2 with a model's own angles, to be learned, in its own layout: x[k] is turned with x[w/2 + k], w ≤ d.

    Angles that are scaled for longer texts (linear, yarn, llama3) are taken as they come; what multiplies cosines and
    sines then multiplies the scores.
    """
    require(
        rotary.rope_type not in CHANGING,
        f"An encoding has one set of angles; those of rope_type={rotary.rope_type!r} change with the length of the "
        "text. Load the model with another rope_type, such as 'yarn' or 'linear'.",
    )
    turned, factor = 2 * len(rotary.inv_freq), float(rotary.attention_scaling)
    require(
        factor == 1 or turned == head_dim,
        f"A factor of the cosines is one of the scores only if all features turn; got attention_factor={factor}, "
        f"{turned} of {head_dim} features turned.",
    )
    encoding = Encoding(OddEven(head_dim, turned), Orthogonal(head_dim, Angles(rotary.inv_freq, learned=True)))
    encoding.score_scale = factor**2
    return encoding


def pass_on(model: Any, positions: Positions) -> None:
    """Let a model's layers have its positions, if they had its cosines and sines."""
    if rotary_of(model) is not None:
        model.base_model.rotary_emb = positions
