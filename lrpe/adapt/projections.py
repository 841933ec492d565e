"""Find the self-attention of a transformers model and read its projections."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lrpe.errors import require


class Projections(NamedTuple):
    """The projections of one self-attention, and its norms of queries and keys per head, nn.Identity if none."""

    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    o_proj: nn.Linear
    q_norm: nn.Module
    k_norm: nn.Module

    def give_to(self, module: nn.Module) -> None:
        for name, part in self._asdict().items():
            setattr(module, name, part)


class SelfAttention(NamedTuple):
    """One self-attention of a model: ``module``, the child ``name`` of ``owner``, and its projections."""

    owner: Any
    name: str
    module: Any
    projections: Projections
    head_dim: int

    def give_way_to(self, module: nn.Module) -> None:
        """Replace this module by one that includes the output projection; BERT's separate one is removed."""
        setattr(self.owner, self.name, module)
        if hasattr(self.owner, "output") and getattr(self.owner.output, "dense", None) is self.projections.o_proj:
            self.owner.output.dense = nn.Identity()

    @property
    def width(self) -> int:
        return self.projections.q_proj.in_features

    @property
    def heads(self) -> int:
        return self.projections.q_proj.out_features // self.head_dim

    @property
    def key_heads(self) -> int:
        return self.projections.k_proj.out_features // self.head_dim

    @property
    def causal(self) -> bool:
        return self.module.is_causal and getattr(self.module.config, "is_causal", True)

    @property
    def window(self) -> int | None:
        """Return the number of past tokens that a query sees, or None for all."""
        config = self.module.config
        return getattr(self.module, "sliding_window", getattr(config, "sliding_window", None))

    @property
    def turns(self) -> bool:
        """Return whether this layer uses the model's rotary encoding; some layers of SmolLM3 do not."""
        return bool(getattr(self.module, "use_rope", True))

    @property
    def softcap(self) -> float | None:
        """Return c of Gemma 2, which turns scores s into c·tanh(s/c). Gemma 3 has the field but does not use it."""
        return self.module.attn_logit_softcapping if type(self.module).__name__.endswith("Gemma2Attention") else None

    @property
    def attention_dropout(self) -> float:
        """Return the dropout rate of the attention weights."""
        for name in ("attention_dropout", "attn_dropout", "dropout"):
            if hasattr(self.module, name):
                found = getattr(self.module, name)
                return found.p if isinstance(found, nn.Dropout) else found
        return 0.0

    @property
    def dropout(self) -> float:
        """Return the dropout rate of the output, or 0 if the model applies it outside of the attention."""
        return self.module.resid_dropout.p if hasattr(self.module, "resid_dropout") else 0.0


def _read_separate(owner: nn.Module, module: Any) -> tuple[Projections, int]:
    """Read Llama's layout: q_proj, k_proj, v_proj, o_proj; with query and key norms in Qwen3, Gemma 3, some Phi."""
    o_proj = module.o_proj if hasattr(module, "o_proj") else module.dense
    norms = (
        getattr(module, f"{side}_norm", getattr(module, f"{side}_layernorm", None)) or nn.Identity() for side in "qk"
    )
    return Projections(module.q_proj, module.k_proj, module.v_proj, o_proj, *norms), module.head_dim


def _read_fused(owner: nn.Module, module: Any) -> tuple[Projections, int]:
    """Read GPT-NeoX's layout: one matrix with the rows of q, k and v of the first head, then of the second, ..."""
    joined, d = module.query_key_value, module.head_size

    def rows(joint: Tensor, i: int) -> Tensor:
        return joint.unflatten(0, (-1, 3, d))[:, i].flatten(0, 1)

    q, k, v = (_linear(rows(joined.weight, i), None if joined.bias is None else rows(joined.bias, i)) for i in range(3))
    return Projections(q, k, v, module.dense, nn.Identity(), nn.Identity()), d


def _read_transposed(owner: nn.Module, module: Any) -> tuple[Projections, int]:
    """Read GPT-2's layout: one matrix with all columns of q, then of k, then of v, and one for the output."""
    weights, biases = module.c_attn.weight.T.chunk(3), module.c_attn.bias.chunk(3)
    q, k, v = (_linear(weight, bias) for weight, bias in zip(weights, biases, strict=True))
    output = _linear(module.c_proj.weight.T, module.c_proj.bias)
    return Projections(q, k, v, output, nn.Identity(), nn.Identity()), module.head_dim


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return a linear layer with copies of these weights."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    made.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format))
    if bias is not None:
        made.bias = nn.Parameter(bias.detach().clone())
    return made


def _read_bert(owner: Any, module: Any) -> tuple[Projections, int]:
    """Read BERT's layout: query, key and value in one module, and the output projection in the next."""
    projections = Projections(module.query, module.key, module.value, owner.output.dense, nn.Identity(), nn.Identity())
    return projections, module.attention_head_size


READERS: dict[str, Callable[[Any, Any], tuple[Projections, int]]] = {
    "LlamaAttention": _read_separate,
    "MistralAttention": _read_separate,
    "MixtralAttention": _read_separate,
    "Qwen2Attention": _read_separate,
    "Qwen3Attention": _read_separate,
    "PhiAttention": _read_separate,
    "GemmaAttention": _read_separate,
    "Gemma2Attention": _read_separate,
    "Gemma3Attention": _read_separate,
    "SmolLM3Attention": _read_separate,
    "GPTNeoXAttention": _read_fused,
    "GPT2Attention": _read_transposed,
    "BertSelfAttention": _read_bert,
    "RobertaSelfAttention": _read_bert,
    "XLMRobertaSelfAttention": _read_bert,
}


def read_attention(model: nn.Module) -> list[SelfAttention]:
    """Return every self-attention of a model, first layer first; refuse a model with attention of an unknown class."""
    found = list(_find_attention(model))
    known = {id(attention.module) for attention in found} | {id(attention.owner) for attention in found}
    others = {
        type(m).__name__ for m in model.modules() if type(m).__name__.endswith("Attention") and id(m) not in known
    }
    require(
        bool(found) and not others,
        f"All attention of the model must be self-attention of a known class; {type(model).__name__} has "
        f"{', '.join(sorted(others)) or 'none of them'}. Known: {', '.join(READERS)}.",
    )
    return found


def _find_attention(model: nn.Module) -> Iterator[SelfAttention]:
    for owner in model.modules():
        for name, module in owner.named_children():
            reader = READERS.get(type(module).__name__)
            if reader is not None and not getattr(module, "is_cross_attention", False):
                yield SelfAttention(owner, name, module, *reader(owner, module))


def own_config(model: PreTrainedModel) -> None:
    """Give the model and its modules a copy of the configuration, which other models may share."""
    shared, own = model.config, copy.deepcopy(model.config)
    module: Any
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = own
