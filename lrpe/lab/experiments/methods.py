"""The rows of every table: what each method is, as fields of LrpeConfig, and the settings that they are compared in."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lrpe.errors import unknown_name

Fields = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """A row. ``fields`` are its attention's.

    Attributes:
        name: as it is typed.
        title: as it is printed.
        fields: fields of LrpeConfig in every setting.
        authors: fields as the paper's authors ran it, where they differ.
        both_ways: fields where a token also sees those after it, where they differ.
        positions: whether it needs absolute positions, having no others.
    """

    name: str
    title: str
    fields: Fields
    authors: Fields = field(default_factory=dict)
    both_ways: Fields = field(default_factory=dict)
    positions: bool = False


OUTPUT, ENCODED = {"normalizer": "output"}, {"normalizer": "encoded"}
SOFTMAX = {"encoding": "rope", "attention": "softmax"}
WITHOUT_DECAY = {"encoding": {"name": "per", "decay": None}}  # PermuteFormer's own for models that look both ways

METHODS = {
    method.name: method
    for method in (
        Method("base", "Base", {"encoding": "none"}, positions=True),
        Method("rope", "RoPE", {"encoding": "rope"}, ENCODED),
        Method("spe", "SPE", {"encoding": "spe"}, ENCODED),
        Method("per", "PER", {"encoding": "per"}, ENCODED, WITHOUT_DECAY),
        Method("type1", "Type 1", {"encoding": "type1"}, OUTPUT),
        Method("type2", "Type 2", {"encoding": "type2"}, OUTPUT),
        Method("type3", "Type 3", {"encoding": "type3"}, OUTPUT),
        Method("cosformer", "cosFormer", {"encoding": "cosformer", "feature_map": "relu"}, ENCODED),
        Method("none", "no positions", {"encoding": "none"}),
        Method("softmax", "softmax + RoPE", SOFTMAX),
        Method("softmax-decay", "softmax + RoPE + decay", SOFTMAX | {"decay": "spread"}),
        Method("recommended", "recommended", {"encoding": "type2", "normalizer": "plain", "decay": "spread"}),
    )
}
SEVEN = ("base", "rope", "spe", "per", "type1", "type2", "type3")  # the paper's
SIX = ("base", "rope", "per", "type1", "type2", "type3")  # where it has no SPE


def fair(method: Method, model: Fields) -> Fields:
    """One φ and one normaliser (PlainDelta) for every row; absolute positions for the row that has no others.

    PER keeps the decay that it was published with, and ``recommended`` is as it is recommended.
    """
    absolute = model.get("absolute_positions") or "sinusoidal"
    return {"normalizer": "plain", "absolute_positions": absolute if method.positions else None} | rows_own(
        method, model
    )


def absolute(method: Method, model: Fields) -> Fields:
    """The fair setting with the column's absolute positions for every row."""
    return fair(method, model) | {"absolute_positions": model.get("absolute_positions") or "sinusoidal"}


def authors(method: Method, model: Fields) -> Fields:
    """As the authors ran it: their normalisers, absolute positions for all, PER's permutation shared by heads.

    On images Δ is of what is not encoded, and the angle is α(row + column). Their SPE, which held no positions, and
    their PER's decay that grows towards later tokens are not copied.
    """
    positions = {"absolute_positions": model.get("absolute_positions") or "sinusoidal"}
    found = {"normalizer": "plain"} | positions | rows_own(method, model) | method.authors
    if model.get("image_size") is not None:
        found |= {"position_layout": "diagonal"} | ({"normalizer": "plain"} if method.authors == ENCODED else {})
    return found | (shared_by_heads(model) if method.name == "per" else {})


Setting = Callable[[Method, Fields], Fields]  # of a row and the column's fields: the row's fields
SETTINGS: dict[str, Setting] = {"fair": fair, "absolute": absolute, "authors": authors}


def row(name: str, setting: str, model: Fields) -> Fields:
    """The fields of LrpeConfig that the row of this name decides in this setting; ``model`` are the column's."""
    return find_setting(setting)(find_method(name), model)


def find_setting(name: str) -> Setting:
    if name not in SETTINGS:
        raise unknown_name("setting", name, SETTINGS)
    return SETTINGS[name]


def rows_own(method: Method, model: Fields) -> Fields:
    found: Fields = {"decay": None} | method.fields
    if not model.get("causal"):
        found |= method.both_ways
    if model.get("position_layout") == "grid":
        found |= {"decay": None}  # which counts steps along a sequence
    return found


def shared_by_heads(model: Fields) -> Fields:
    """PER with one permutation for all heads; its decay, sigmoid(3h/H + 2), where tokens see only those before them."""
    import torch

    heads = model["num_attention_heads"]
    decay = torch.sigmoid(3 * torch.arange(heads, dtype=torch.float64) / heads + 2).tolist()
    encoding = {"basis": "identity", "matrix": "permutation", "acts": "before"}
    return {"encoding": encoding, "decay": decay if model.get("causal") else None}


def find_method(name: str) -> Method:
    """A row by its name, or any P × Λ written as "basis*matrix", run as the paper's three types are."""
    if name in METHODS:
        return METHODS[name]
    if "*" not in name:
        raise unknown_name("method", name, [*METHODS, "basis*matrix"])
    from lrpe.encodings.config import BASES, MATRICES  # which import torch: the check of a name needs none

    basis, _, matrix = name.partition("*")
    if basis not in BASES or matrix not in MATRICES:
        raise unknown_name("method", name, [f"{P}*{Lambda}" for P in BASES for Lambda in MATRICES])
    learned = matrix != "permutation"
    return Method(name, name, {"encoding": {"name": name, "learned_angles": learned}}, OUTPUT)
