"""The softmax attention of a transformers model, with an encoding of ours where its rotary one was."""

from functools import cache
from typing import Any

from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import eager_attention_forward

from lrpe.encodings.encoding import Encoding
from lrpe.replacement.projections import SelfAttention
from lrpe.replacement.rotary import Place


class Encoded:
    """A forward for attention modules of transformers: they keep their cache, masks and attention implementations.

    Keys are encoded before they are cached, at their true positions.
    """

    def forward(
        self: Any,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_embeddings: Place | None = None,
        past_key_values: Any = None,
        layer_past: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        assert position_embeddings is not None
        maps, head_dim = (self.q_proj, self.k_proj, self.v_proj), self.encoding.head_dim
        q, k, v = (project(hidden_states).unflatten(-1, (-1, head_dim)).transpose(1, 2) for project in maps)
        table = self.encoding.table(position_embeddings.positions, q.dtype)
        q, k = self.encoding.query(self.q_norm(q), table), self.encoding.key(self.k_norm(k), table)
        past = layer_past if past_key_values is None else past_key_values
        if past is not None:
            k, v = past.update(k, v, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get(self.config._attn_implementation, eager_attention_forward)
        out, weights = attend(
            self,
            q,
            k,
            v,
            attention_mask,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=self.scaling * self.encoding.score_scale,
            sliding_window=self.window,
            **kwargs,
        )
        return self.o_proj(out.flatten(2)), weights


def encode_instead(attention: SelfAttention, encoding: Encoding) -> None:
    """Turn a rotary attention module into one with our encoding, its weights under the names q_proj, ..., o_proj."""
    module = attention.module
    for name, _ in list(module.named_children()):
        delattr(module, name)
    attention.projections.give_to(module)
    module.encoding, module.window = encoding.train(module.training), attention.window
    module.num_key_value_groups = attention.heads // attention.key_heads
    module.__class__ = encoded(type(module))


@cache
def encoded(kind: type[nn.Module]) -> type[nn.Module]:
    """A class of attention with that forward; still of its own kind, so that a model can record its weights."""
    return type(f"Encoded{kind.__name__}", (Encoded, kind), {})
