"""Where the self-attention of a transformers model stands, and which of its weights do what."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import Tensor, nn

from lrpe.errors import require


class Projections(NamedTuple):
    """The maps of one self-attention, as nn.Linear; and norms of queries and keys, head by head, where there are."""

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
    """One self-attention of a model: the module ``name`` of its ``owner``, and what it computes with."""

    owner: Any
    name: str
    module: Any
    projections: Projections
    head_dim: int

    def give_way_to(self, module: nn.Module) -> None:
        """Put another module where this one is, which maps its output itself: BERT's map after it goes."""
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
        """How many tokens back a query sees, or None for all of them."""
        config = self.module.config
        return getattr(self.module, "sliding_window", getattr(config, "sliding_window", None))


def separate(owner: nn.Module, module: Any) -> tuple[Projections, int]:
    """Llama's way: q_proj, k_proj, v_proj, o_proj; with norms of queries and keys in Qwen3 and some of Phi."""
    o_proj = module.o_proj if hasattr(module, "o_proj") else module.dense
    norms = (
        getattr(module, f"{side}_norm", getattr(module, f"{side}_layernorm", None)) or nn.Identity() for side in "qk"
    )
    return Projections(module.q_proj, module.k_proj, module.v_proj, o_proj, *norms), module.head_dim


def fused(owner: nn.Module, module: Any) -> tuple[Projections, int]:
    """GPT-NeoX's way: one matrix whose rows are q, k and v of the first head, then of the second, and so on."""
    q_proj, k_proj, v_proj = (part(module.query_key_value, i, module.head_size) for i in range(3))
    return Projections(q_proj, k_proj, v_proj, module.dense, nn.Identity(), nn.Identity()), module.head_size


def part(joined: nn.Linear, i: int, head_dim: int) -> nn.Linear:
    """The map to q, k or v (i = 0, 1, 2) out of a fused one, as a copy."""

    def rows(joint: Tensor) -> nn.Parameter:
        return nn.Parameter(joint.detach().unflatten(0, (-1, 3, head_dim))[:, i].clone().flatten(0, 1))

    taken = nn.Linear(joined.in_features, joined.out_features // 3, joined.bias is not None, device="meta")
    taken.weight = rows(joined.weight)
    if joined.bias is not None:
        taken.bias = rows(joined.bias)
    return taken


def around_output(owner: Any, module: Any) -> tuple[Projections, int]:
    """BERT's way: query, key and value in one module, and the map of the output in the module after it."""
    projections = Projections(module.query, module.key, module.value, owner.output.dense, nn.Identity(), nn.Identity())
    return projections, module.attention_head_size


READERS: dict[str, Callable[[Any, Any], tuple[Projections, int]]] = {
    "LlamaAttention": separate,
    "MistralAttention": separate,
    "MixtralAttention": separate,
    "Qwen2Attention": separate,
    "Qwen3Attention": separate,
    "PhiAttention": separate,
    "GPTNeoXAttention": fused,
    "BertSelfAttention": around_output,
    "RobertaSelfAttention": around_output,
    "XLMRobertaSelfAttention": around_output,
}


def read_attention(model: nn.Module) -> list[SelfAttention]:
    """Every self-attention of a model, from the first layer to the last. All or none of its attention is understood."""
    found = list(find(model))
    known = {id(attention.module) for attention in found} | {id(attention.owner) for attention in found}
    others = {
        type(m).__name__ for m in model.modules() if type(m).__name__.endswith("Attention") and id(m) not in known
    }
    require(
        bool(found) and not others,
        f"The attention of {type(model).__name__} is to be replaced as a whole, and not all of it is understood: "
        f"{', '.join(sorted(others)) or 'it has none of these'}. Understood: {', '.join(READERS)}.",
    )
    return found


def find(model: nn.Module) -> Iterator[SelfAttention]:
    for owner in model.modules():
        for name, module in owner.named_children():
            reader = READERS.get(type(module).__name__)
            if reader is not None:
                yield SelfAttention(owner, name, module, *reader(owner, module))
