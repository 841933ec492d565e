"""Read the rotary encoding of a transformers model as Type 2, and replace it by another encoding."""

import sys
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lrpe.adapt.derived import Derived, derive
from lrpe.adapt.projections import SelfAttention, own_config, read_attention
from lrpe.attention.choices import choose_encoding
from lrpe.encodings.angles import Angles
from lrpe.encodings.basis import OddEven
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import Encoding, PositionalEncoding
from lrpe.encodings.family import configure_for_heads
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.errors import LrpeError, require

_LENGTH_DEPENDENT = ("dynamic", "longrope")  # rope types whose angles depend on the length of the input


class NoRotary(nn.Module):
    """Replaces the module of cosines and sines once no layer needs them."""

    def forward(self, *args: Any, **kwargs: Any) -> None:
        return None


def rotary_of(model: Any) -> Any:
    """Return the module that computes a model's cosines and sines, or None if its positions are absolute."""
    return getattr(model.base_model, "rotary_emb", None)


def _rotary_encoding(rotary: Any, attention: SelfAttention) -> Encoding:
    """Return Type 2 with a model's own angles, now learned, in its layout: x[k] is rotated with x[w/2 + k], w ≤ d.

    Angles scaled for longer texts (linear, yarn, llama3) are taken unchanged. A factor c of cosines and sines becomes
    a factor c² of the scores.
    """
    kind, angles, factor = _read_rotary(rotary, getattr(attention.module, "layer_type", None))
    require(
        kind not in _LENGTH_DEPENDENT,
        f"rope_type must have fixed angles; those of rope_type={kind!r} change with the length of the text. Load the "
        "model with another rope_type, such as 'yarn' or 'linear'.",
    )
    turned, head_dim = 2 * len(angles), attention.head_dim
    require(
        factor == 1 or turned == head_dim,
        f"attention_factor must be 1 unless all features are rotated; got attention_factor={factor}, with {turned} of "
        f"{head_dim} features rotated. Load the model with attention_factor=1.",
    )
    encoding = Encoding(OddEven(head_dim, turned), Orthogonal(head_dim, Angles(angles, learned=True)))
    encoding.score_scale = factor**2
    return encoding


def _read_rotary(rotary: Any, layer_type: str | None) -> tuple[str, Tensor, float]:
    """Return the kind, angles and cosine factor of a layer; in Gemma 3 each type of layer has its own."""
    if not isinstance(rotary.rope_type, dict):
        return rotary.rope_type, rotary.inv_freq, float(rotary.attention_scaling)
    angles, factor = (getattr(rotary, f"{layer_type}_{name}") for name in ("inv_freq", "attention_scaling"))
    return rotary.rope_type[layer_type], angles, float(factor)


class Encoded(Derived):
    """Adds our encoding to a transformers attention module, which keeps its cache, masks and implementations.

    Keys are encoded before they are cached, at their true positions.
    """

    prefix = "Encoded"

    def forward(
        self: Any,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        layer_past: Any = None,
        position_embeddings: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        maps, head_dim = (self.q_proj, self.k_proj, self.v_proj), self.encoding.head_dim
        q, k, v = (project(hidden_states).unflatten(-1, (-1, head_dim)).transpose(1, 2) for project in maps)
        table = self.encoding.table(position_ids, q.dtype)
        q, k = self.encoding.query(self.q_norm(q), table), self.encoding.key(self.k_norm(k), table)
        past = layer_past if past_key_values is None else past_key_values
        if past is not None:
            k, v = past.update(k, v, self.layer_idx)
        out, weights = self.attention_function()(
            self,
            q,
            k,
            v,
            attention_mask,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=self.scaling * self.encoding.score_scale,
            **self.bounds,
            **kwargs,
        )
        return self.o_proj(out.flatten(2)), weights

    def attention_function(self: Any) -> Any:
        """Return the function of the model's attn_implementation; the eager one is in the model's own module."""
        eager = sys.modules[type(self).__module__].eager_attention_forward
        return ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager)


def _encode_instead(attention: SelfAttention, encoding: Encoding) -> None:
    """Give a rotary attention module our encoding, and its weights the names q_proj, ..., o_proj.

    Its new class is a subclass of its own, because transformers finds attention weights to record by class.
    """
    module, softcap = attention.module, attention.softcap
    for name, _ in list(module.named_children()):
        delattr(module, name)
    attention.projections.give_to(module)
    module.encoding = encoding.train(module.training)
    module.bounds = {"sliding_window": attention.window} | ({} if softcap is None else {"softcap": softcap})
    module.num_key_value_groups = attention.heads // attention.key_heads
    module.__class__ = derive(Encoded, type(module))


def swap_rotary(model: PreTrainedModel, encoding: Any) -> None:
    """Replace the encoding of every layer that has a rotary one, and nothing else."""
    found = [(layer, attention) for layer, attention in enumerate(read_attention(model)) if attention.turns]
    require(
        rotary_of(model) is not None,
        f"model must have a rotary encoding; the positions of {type(model).__name__} are absolute. Use "
        "replace_attention to add a relative encoding.",
    )
    made = [_check_member(choose_for_layer(encoding, model, attention, layer), attention) for layer, attention in found]
    for (_, attention), chosen in zip(found, made, strict=True):
        _encode_instead(attention, chosen)
    own_config(model)
    model.base_model.rotary_emb = NoRotary()


def choose_for_layer(choice: Any, model: PreTrainedModel, attention: SelfAttention, layer: int) -> PositionalEncoding:
    """Build the encoding of one layer, on its device."""
    with attention.projections.q_proj.weight.device:
        if choice is None and rotary_of(model) is not None and attention.turns:
            return _rotary_encoding(rotary_of(model), attention)
        config = _configure_layer("none" if choice is None else choice, attention)
        return replace(config, seed=(config.seed or 0) + layer).build()


def _configure_layer(choice: Any, attention: SelfAttention) -> EncodingConfig:
    if isinstance(choice, str):
        return configure_for_heads(choice, attention.head_dim, attention.key_heads)
    if not isinstance(choice, EncodingConfig):
        raise LrpeError(
            f"encoding must be a name or an EncodingConfig, from which each layer builds its own; got "
            f"{type(choice).__name__}."
        )
    return choice


def _check_member(encoding: PositionalEncoding, attention: SelfAttention) -> Encoding:
    """Return the encoding if a model's own attention can use it: no decay, no noise, no grid."""
    choose_encoding(encoding, attention.head_dim, attention.key_heads)
    if not isinstance(encoding, Encoding) or encoding.decay is not None or encoding.axes != 1:
        raise LrpeError(
            "encoding must be a member of the family along a sequence, without a decay, if the model keeps its own "
            f"attention; got {encoding}. replace_attention takes any encoding along a sequence."
        )
    return encoding
