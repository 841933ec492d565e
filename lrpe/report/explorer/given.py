"""What the page is given: names and colours, and the vectors and permutations that Python draws from a seed."""

from typing import Any

from lrpe.encodings.config import BASES, MATRICES, EncodingConfig
from lrpe.encodings.family import FAMILY, configure
from lrpe.encodings.householder import Householder
from lrpe.encodings.permutation import draw
from lrpe.experiments.methods import METHODS
from lrpe.report.palette import LOOKS, TYPES

DIMS, SEEDS = (8, 16, 32, 64), range(8)
TITLES = {"identity": "= I", "householder": "Householder"}
SHOWN = ("type2", "type3")  # side by side when the page opens


def given(learned: list[dict[str, Any]]) -> dict[str, Any]:
    """All of it, as JSON; ``learned`` has a run an entry."""
    return {
        "methods": {name: method(name) for name in METHODS if name in FAMILY},
        "types": TYPES | {"none": "none"},
        "matrices": {name: name for name in MATRICES} | {"none": "none"},
        "bases": {name: TITLES.get(name, name) for name in BASES if name != "learned"},
        "vectors": {dim: [Householder(dim, seed=seed).v[0].tolist() for seed in SEEDS] for dim in DIMS},
        "permutations": {dim: [draw(dim, seed, None).tolist() for seed in SEEDS] for dim in DIMS},
        "shown": SHOWN,
        "learned": learned,
    }


def method(name: str) -> dict[str, str]:
    """A method's title and colour, and the choices that it stands for."""
    look = {"title": METHODS[name].title, "colour": LOOKS[name].colour}
    return look | parts(configure(name, head_dim=64, length=512))


def parts(config: EncodingConfig) -> dict[str, str]:
    """The choices that an encoding's configuration stands for."""
    matrix = "none" if config.matrix == "orthogonal" and config.rotated == 0 else config.matrix
    return {"basis": config.basis, "matrix": matrix, "angles": config.angles}
