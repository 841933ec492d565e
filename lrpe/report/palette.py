"""One colour and one shape a method, the same in every picture. Its name is its title in experiments/methods.py.

The paper's seven have the colours of Okabe and Ito, which are apart for every kind of eye. No list of twelve is, so
pictures of many methods show the shapes as well.
"""

from dataclasses import dataclass

from lrpe.errors import unknown_name


@dataclass(frozen=True)
class Look:
    """A colour, and a shape of Vega's symbols."""

    colour: str
    shape: str


LOOKS = {
    "base": Look("#000000", "circle"),
    "rope": Look("#E69F00", "square"),
    "spe": Look("#56B4E9", "cross"),
    "per": Look("#009E73", "diamond"),
    "type1": Look("#CC79A7", "triangle-up"),
    "type2": Look("#D55E00", "triangle-down"),
    "type3": Look("#0072B2", "triangle-right"),
    "cosformer": Look("#999933", "triangle-left"),
    "none": Look("#999999", "circle"),
    "softmax": Look("#332288", "square"),
    "softmax-decay": Look("#7A5C2E", "diamond"),
    "recommended": Look("#882255", "cross"),
}
BASES = {"householder": LOOKS["type2"], "identity": LOOKS["rope"], "odd-even": LOOKS["per"]}  # rows of the ablation
TYPES = {"unitary": "type1", "orthogonal": "type2", "permutation": "type3"}  # what a Λ is in the paper


def look(name: str) -> Look:
    """The look of a method, of a product "basis*matrix", which is that of its type, or of a basis alone."""
    known, looks = TYPES.get(name.partition("*")[2], name), LOOKS | BASES
    if known not in looks:
        raise unknown_name("method with a colour", name, looks)
    return looks[known]
