"""The rows of every table: what each method is, as fields of LrpeConfig."""

from dataclasses import dataclass, field
from typing import Any

from lrpe.errors import unknown_name


@dataclass(frozen=True)
class Method:
    """A row. ``fields`` are its attention's; ``authors`` are those that its authors ran it with, where they differ.

    ``positions`` says whether it needs absolute positions, having no others.
    """

    name: str
    title: str
    fields: dict[str, Any]
    authors: dict[str, Any] = field(default_factory=dict)
    positions: bool = False


OUTPUT, ENCODED = {"normalizer": "output"}, {"normalizer": "encoded"}

METHODS = {
    method.name: method
    for method in (
        Method("base", "Base", {"encoding": "none"}, positions=True),
        Method("rope", "RoPE", {"encoding": "rope"}, ENCODED),
        Method("spe", "SPE", {"encoding": "spe"}, ENCODED),
        Method("per", "PER", {"encoding": "per"}, ENCODED),
        Method("type1", "Type 1", {"encoding": "type1"}, OUTPUT),
        Method("type2", "Type 2", {"encoding": "type2"}, OUTPUT),
        Method("type3", "Type 3", {"encoding": "type3"}, OUTPUT),
        Method("cosformer", "cosFormer", {"encoding": "cosformer", "feature_map": "relu"}, ENCODED),
        Method("none", "no positions", {"encoding": "none"}),
        Method("softmax", "softmax + RoPE", {"encoding": "rope", "attention": "softmax"}),
        Method("recommended", "recommended", {"encoding": "type2", "normalizer": "output", "decay": "spread"}),
    )
}
SEVEN = ("base", "rope", "spe", "per", "type1", "type2", "type3")  # the paper's


def fair(name: str, absolute: str | None = None) -> dict[str, Any]:
    """A row under one φ and one normaliser, PlainDelta; absolute positions for all rows, or for those that need them.

    PER keeps the decay that it was published with, and ``recommended`` is as it is recommended.
    """
    method = find_method(name)
    positions = absolute or ("sinusoidal" if method.positions else None)
    return {"normalizer": "plain", "decay": None, "absolute_positions": positions} | method.fields


def as_the_authors_ran_it(name: str, absolute: str = "sinusoidal") -> dict[str, Any]:
    """A row under the normaliser that its authors ran it with, absolute positions left on."""
    method = find_method(name)
    return {"normalizer": "plain", "decay": None, "absolute_positions": absolute} | method.fields | method.authors


def find_method(name: str) -> Method:
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]
