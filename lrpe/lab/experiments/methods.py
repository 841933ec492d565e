"""The rows of every table: each method as fields of LrpeConfig, and the settings in which methods are compared.

The command line checks the names of tables, columns and rows here, because importing their definitions takes seconds.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lrpe.errors import PLUGIN_HINT, require, unknown_name
from lrpe.lab.experiments import paper
from lrpe.registry import Registry

Fields = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """A row of a table: a method and its attention.

    Attributes:
        name: the name on the command line.
        title: the name in printed tables.
        fields: fields of LrpeConfig in every setting.
        authors: fields that differ in the authors' own runs.
        both_ways: fields that differ in bidirectional models.
        positions: whether it needs absolute positions because it has no relative ones.
        on_grids: fields that differ where positions are rows and columns.
        head_dim: features per head that it asks for, where the model is wide enough for two such heads.
    """

    name: str
    title: str
    fields: Fields
    authors: Fields = field(default_factory=dict)
    both_ways: Fields = field(default_factory=dict)
    positions: bool = False
    on_grids: Fields = field(default_factory=dict)
    head_dim: int | None = None


_OUTPUT, _ENCODED = {"normalizer": "output"}, {"normalizer": "encoded"}
_PHI = {"feature_map": "elu+1"}  # as in every other row, instead of the published one
_NORM_PER_HEAD = {"feature_map": "identity", "normalizer": "output-rms-head"}  # RetNet's and Mamba's
_TRANSNORMER = {"feature_map": "silu", "normalizer": "output-rms"}
SOFTMAX = {"encoding": "rope", "attention": "softmax"}
_SPREAD = {"encoding": "type2", "normalizer": "plain", "decay": "spread"}
_HYBRID = _SPREAD | {"attention": "linear+softmax"}  # every second layer, so that two layers are enough
_SELECTIVE, _GATED = {"encoding": "selective"}, {"decay": "gated"}
_GATE, _CONVOLUTION = {"output_gate": "silu"}, {"convolution": 4}
_BOTH = _GATE | _CONVOLUTION
_PAPERS_BLOCK: Fields = {"decay": None, "output_gate": None, "convolution": None}  # the paper has none of them
_WITHOUT_DECAY = {"encoding": {"name": "per", "decay": None}}  # PermuteFormer's own choice for bidirectional models

_METHODS = (
    Method("base", "Base", {"encoding": "none"}, positions=True),
    Method("rope", "RoPE", {"encoding": "rope"}, _ENCODED),
    Method("spe", "SPE", {"encoding": "spe"}, _ENCODED),
    Method("per", "PER", {"encoding": "per"}, _ENCODED, _WITHOUT_DECAY),
    Method("type1", "Type 1", {"encoding": "type1"}, _OUTPUT),
    Method("type2", "Type 2", {"encoding": "type2"}, _OUTPUT),
    Method("type3", "Type 3", {"encoding": "type3"}, _OUTPUT),
    Method("cosformer", "cosFormer", {"encoding": "cosformer", "feature_map": "relu"}, _ENCODED),
    Method("pope", "PoPE", {"encoding": "pope", "feature_map": "softplus"}, _ENCODED),
    Method("hope", "HoPE", {"encoding": "hope"}, _ENCODED),
    Method("p-rope", "p-RoPE", {"encoding": "p-rope"}, _ENCODED),
    Method("retnet", "RetNet", {"encoding": "retnet", "decay": "retnet", **_PHI}, _NORM_PER_HEAD),
    Method("lrpe-d", "LRPE-d", {"encoding": "lrpe-d", "decay": "tnl", **_PHI}, _TRANSNORMER),
    Method("mamba3", "Mamba-3 rotation", {"encoding": "mamba3", "decay": "mamba3", **_PHI}, _NORM_PER_HEAD),
    Method("mixed", "mixed axes", {"encoding": "mixed"}, {"position_layout": "grid"}),
    Method("none", "no positions", {"encoding": "none"}),
    Method("softmax", "softmax + RoPE", SOFTMAX),
    Method("softmax-decay", "softmax + RoPE + decay", SOFTMAX | {"decay": "spread"}),
    Method("softmax-decay-gate-conv", "softmax + decay + both", SOFTMAX | {"decay": "spread"} | _BOTH),
    Method("softmax-gated-gate-conv", "softmax + gated + both", SOFTMAX | _GATED | _BOTH),
    Method("spread", "Type 2 + spread decay", _SPREAD),
    Method("spread-gate", "spread decay + gate", _SPREAD | _GATE),
    Method("spread-conv", "spread decay + convolution", _SPREAD | _CONVOLUTION),
    Method("spread-gate-conv", "spread decay + both", _SPREAD | _BOTH),
    Method("learned-decay", "Type 2 + learned decay", {"encoding": "type2", "decay": "learned"}),
    Method("gated", "Type 2 + gated decay", {"encoding": "type2"} | _GATED),
    Method("gated-gate-conv", "gated decay + both", {"encoding": "type2"} | _GATED | _BOTH),
    Method("selective", "selective Type 2 + decay", _SELECTIVE | {"decay": "spread"}),
    Method("selective-gated", "selective Type 2 + gated decay", _SELECTIVE | _GATED),
    Method("selective-gate-conv", "selective + gated + both", _SELECTIVE | _GATED | _BOTH),
    Method("switched-gated", "switched + gated decay", {"encoding": "switched"} | _GATED),
    Method("hybrid", "hybrid", _HYBRID),
    Method("hybrid-gate-conv", "hybrid + both", _HYBRID | _BOTH),
    Method("hybrid-gated-gate-conv", "hybrid + gated + both", _HYBRID | _GATED | _BOTH),
    Method("recommended", "recommended", _SELECTIVE | _GATED | _BOTH, on_grids={"encoding": "type2"}, head_dim=64),
)
METHODS: Registry[Method] = Registry({method.name: method for method in _METHODS})
# Members of the family without a row of their own
_MEMBERS = ("selective-free", "switched", "rope-half", "half-rotated", "permuteformer")
SEVEN = ("base", "rope", "spe", "per", "type1", "type2", "type3")  # the paper's rows
SIX = ("base", "rope", "per", "type1", "type2", "type3")  # the paper's rows in tables without SPE
REFERENCES = ("base", "rope")  # the rows that the others are tested against, unless others are named
MARKS = "†‡§¶"  # of a difference from the first, second, third and fourth of these rows


def fair(method: Method, model: Fields) -> Fields:
    """One φ and one normaliser (PlainDelta) for every row; absolute positions for Base only.

    PER keeps its published decay, and ``recommended`` keeps its own fields.
    """
    absolute = model.get("absolute_positions") or "sinusoidal"
    return {"normalizer": "plain", "absolute_positions": absolute if method.positions else None} | _rows_own(
        method, model
    )


def absolute(method: Method, model: Fields) -> Fields:
    """The fair setting with the column's absolute positions for every row."""
    return fair(method, model) | {"absolute_positions": model.get("absolute_positions") or "sinusoidal"}


def authors(method: Method, model: Fields) -> Fields:
    """As the authors ran it: their normalisers, absolute positions for all, PER's permutation shared by heads.

    On images Δ is computed from unencoded queries and keys, and the angle is α(row + column). Their SPE, which had no
    positions, and their PER's decay, which grows towards later tokens, are not copied.
    """
    positions = {"absolute_positions": model.get("absolute_positions") or "sinusoidal"}
    fields = {"normalizer": "plain"} | positions | _rows_own(method, model) | method.authors
    if model.get("image_size") is not None:
        fields = (
            {"position_layout": "diagonal"} | fields | ({"normalizer": "plain"} if method.authors == _ENCODED else {})
        )
    return fields | (_shared_by_heads(model) if method.name == "per" else {})


Setting = Callable[[Method, Fields], Fields]  # takes a row and the column's fields, returns the row's fields
SETTINGS: dict[str, Setting] = {"fair": fair, "absolute": absolute, "authors": authors}


def row(name: str, setting: str, model: Fields) -> Fields:
    """Return the fields of LrpeConfig that this row decides in this setting; ``model`` has the column's fields."""
    return find_setting(setting)(find_method(name), model)


def find_setting(name: str) -> Setting:
    if name not in SETTINGS:
        raise unknown_name("setting", name, SETTINGS)
    return SETTINGS[name]


def _rows_own(method: Method, model: Fields) -> Fields:
    require(
        method.name != "mixed" or model.get("image_size") is not None,
        "The row mixed turns by rows and columns, so it needs a column of images. Leave it out.",
    )
    fields = _PAPERS_BLOCK | _heads_of(method, model) | method.fields
    if not model.get("causal"):
        fields |= method.both_ways
    if model.get("position_layout") == "grid":
        fields |= {"decay": None, "convolution": None} | method.on_grids  # both run along a sequence
    return fields


def _heads_of(method: Method, model: Fields) -> Fields:
    """Return the number of heads that gives a row the width per head that it asks for, at least two of them."""
    if method.head_dim is None or "hidden_size" not in model:
        return {}
    heads = max(2, model["hidden_size"] // method.head_dim)
    return {"num_attention_heads": heads} if model["hidden_size"] % heads == 0 else {}


def _shared_by_heads(model: Fields) -> Fields:
    """Return PER with one permutation for all heads and, in causal models, its decay sigmoid(3h/H + 2)."""
    import torch

    heads = model["num_attention_heads"]
    decay = torch.sigmoid(3 * torch.arange(heads, dtype=torch.float64) / heads + 2).tolist()
    encoding = {"basis": "identity", "matrix": "permutation", "acts": "before"}
    return {"encoding": encoding, "decay": decay if model.get("causal") else None}


def find_method(name: str) -> Method:
    """Return a row by name, also of any other encoding: a member of the family, or P × Λ as "basis*matrix"."""
    if name in METHODS:
        return METHODS[name]
    if name in _MEMBERS or name in _find_registered():
        return _find_member(name)
    if "*" not in name:
        raise unknown_name("method", name, [*METHODS, *_MEMBERS, *_find_registered(), "basis*matrix"], PLUGIN_HINT)
    from lrpe.encodings.config import BASES, MATRICES  # this imports torch, which checking a plain name does not need

    basis, _, matrix = name.partition("*")
    if basis not in BASES or matrix not in MATRICES:
        raise unknown_name("method", name, [f"{P}*{Lambda}" for P in BASES for Lambda in MATRICES], PLUGIN_HINT)
    learned = matrix != "permutation"
    return Method(name, name, {"encoding": {"name": name, "learned_angles": learned}}, _OUTPUT)


def _find_registered() -> list[str]:
    """Return users' own members of the family. Without the family's module, which imports torch, there are none."""
    family = sys.modules.get("lrpe.encodings.family")
    return [] if family is None else [name for name in family.FAMILY if family.FAMILY.is_foreign(name)]


def _find_member(name: str) -> Method:
    """Return a member of the family as a row: as published in the setting ``authors``, else with its decay alone."""
    from lrpe.attention.choices import MEMBERS

    if name not in MEMBERS:
        return Method(name, name, {"encoding": name}, _OUTPUT)
    member = MEMBERS[name]
    published = {"feature_map": member.feature_map, "normalizer": member.normalizer}
    return Method(name, name, {"encoding": name, "decay": member.decay}, published)


TABLE_NAMES = ("lm", "glue", "imagenet", "lra", "basis", "speed", "normalizer", "length", "position", "probes")
COLUMN_NAMES = (
    "wikitext103", "books", "wikitext2", "stdlib", "wikibook", "glue-mnli", "glue-qnli", "glue-qqp", "glue-rte",
    "glue-sst2", "glue-mrpc", "glue-cola", "glue-stsb", "imagenet", "cifar10", "lra-text", "lra-listops",
    "lra-retrieval", "lra-pathfinder", "lra-image", "parity", "s3", "flip-flop", "copying", "fixed-offset",
    "indirect-indexing", "mqar", "duplicate-keys", "associative-recall",
)  # fmt: skip


def check_table(name: str) -> None:
    if name not in TABLE_NAMES:
        raise unknown_name("table", name, TABLE_NAMES)


def check_column(name: str) -> None:
    if name not in COLUMN_NAMES:
        raise unknown_name("column", name, COLUMN_NAMES)


def check_row(name: str) -> None:
    """Check a row: a method, a scaled one (rope+yarn), a product (fourier*unitary) or a P of the table basis."""
    method = name.partition("+")[0]
    if method not in METHODS and method not in paper.BASIS:
        find_method(method)
