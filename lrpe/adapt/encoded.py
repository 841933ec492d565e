"""The softmax attention of a transformers model, with an encoding of ours in place of its rotary one."""

import sys
from typing import Any

from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lrpe.adapt.derived import Derived, derive
from lrpe.adapt.projections import SelfAttention
from lrpe.encodings.encoding import Encoding


class Encoded(Derived):
    """A forward for attention modules of transformers: they keep their cache, masks and attention implementations.

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
        """The function of the model's attn_implementation; each family brings an eager one of its own."""
        eager = sys.modules[type(self).__module__].eager_attention_forward
        return ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager)


def encode_instead(attention: SelfAttention, encoding: Encoding) -> None:
    """Turn a rotary attention module into one with our encoding, its weights under the names q_proj, ..., o_proj.

    It stays of its own kind, so that a model can record its weights.
    """
    module, softcap = attention.module, attention.softcap
    for name, _ in list(module.named_children()):
        delattr(module, name)
    attention.projections.give_to(module)
    module.encoding = encoding.train(module.training)
    module.bounds = {"sliding_window": attention.window} | ({} if softcap is None else {"softcap": softcap})
    module.num_key_value_groups = attention.heads // attention.key_heads
    module.__class__ = derive(Encoded, type(module))
