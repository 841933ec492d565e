"""The JSON data in the page: names, colours, and the numbers that Python computes."""

from collections.abc import Sequence
from typing import Any

from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.family import FAMILY, configure
from lrpe.encodings.householder import Householder
from lrpe.encodings.permutation import draw
from lrpe.lab.experiments.methods import METHODS
from lrpe.lab.report.explorer.dense import DIMS, FORMULAS, describe_registered
from lrpe.lab.report.palette import LOOKS, TYPES, look

_SEEDS = range(8)
_TITLES = {"identity": "= I", "householder": "Householder"}
_SHOWN = ("type2", "type3")  # the two encodings shown when the page opens


def page_data(learned: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the page's data; ``learned`` has an entry per run."""
    dense, refused = describe_registered()
    matrices = [*FORMULAS["matrices"], *dense["matrices"]]
    return {
        "methods": {name: method(name) for name in METHODS if name in FAMILY},
        "types": {name: _type_of(name) for name in matrices} | {"none": method("none")},
        "matrices": {name: name for name in (*matrices, "none")},
        "bases": {name: _TITLES.get(name, name) for name in (*FORMULAS["bases"], *dense["bases"])},
        "angles": [*FORMULAS["angles"], *dense["angles"]],
        "dense": dense,
        "refused": [*refused, *(sentence for run in learned for sentence in run["refused"])],
        "vectors": {dim: [Householder(dim, seed=seed).v[0].tolist() for seed in _SEEDS] for dim in DIMS},
        "permutations": {dim: [draw(dim, seed, None).tolist() for seed in _SEEDS] for dim in DIMS},
        "shown": _SHOWN,
        "learned": learned,
    }


def method(name: str) -> dict[str, str]:
    """Return a method's title, colour and parts."""
    shown = {"title": METHODS[name].title, "colour": LOOKS[name].colour}
    return shown | parts(configure(name, head_dim=64, length=512))


def _type_of(matrix: str) -> dict[str, str]:
    """Return the title and the colour of compositions with this Λ."""
    known = TYPES.get(matrix)
    return {"title": METHODS[known].title if known else f"Λ {matrix}", "colour": look(f"identity*{matrix}").colour}


def parts(config: EncodingConfig) -> dict[str, str]:
    """Return the names of P, Λ and α in an encoding's configuration."""
    matrix = "none" if config.matrix == "orthogonal" and config.rotated == 0 else config.matrix
    return {"basis": config.basis, "matrix": matrix, "angles": config.angles}
