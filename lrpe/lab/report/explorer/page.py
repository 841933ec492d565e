"""The explorer as one HTML file, with style, data, Vega and scripts inside: it needs no network and no server."""

import importlib
import math
from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from lrpe.atomic import write_atomically
from lrpe.encodings.basis import Householder
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.family import FAMILY, configure
from lrpe.encodings.permutation import draw
from lrpe.errors import LrpeError, require, unknown_name
from lrpe.lab.experiments.methods import METHODS, find_method
from lrpe.lab.report.explorer.dense import COUNTS, DIMS, FORMULAS, describe_registered
from lrpe.lab.report.page import code_in_script, fill, json_in_script, shared_style
from lrpe.lab.report.picture import TYPES, look
from lrpe.theory.kernels import KERNELS
from lrpe.theory.matching import matching

_SEEDS = range(8)
_DISTANCES = 256  # at which kernels are matched and drawn
_MOST_KERNELS = 8  # each takes seconds
_TITLES = {"identity": "= I", "householder": "Householder"}
_FADES = {"retnet": 10, "lrpe-d": 3}  # r = 1 - 2^(-fade/2): RetNet's first head; about TNL's first of 8, half-way up
_SHOWN = ("type2", "type3")  # the two encodings shown when the page opens


def page_data(learned: Sequence[dict[str, Any]], kernels: Sequence[str] = ()) -> dict[str, Any]:
    """Return the page's data; ``learned`` has an entry per run, ``kernels`` are such as "gaussian:16"."""
    dense, refused = describe_registered()
    matrices = [*FORMULAS["matrices"], *dense["matrices"]]
    members, not_drawn = _describe_members(dense)
    wishes = match_kernels(kernels)
    return {
        "methods": members | {f"type2 {name}": _match_method(name) for name in wishes},
        "types": {name: _type_of(name) for name in matrices} | {"none": method("none")},
        "matrices": {name: name for name in (*matrices, "none")},
        "bases": {name: _TITLES.get(name, name) for name in (*FORMULAS["bases"], *dense["bases"])},
        "angles": [*FORMULAS["angles"], *dense["angles"], *wishes],
        "wishes": wishes,
        "dense": dense,
        "refused": [*refused, *not_drawn, *(sentence for run in learned for sentence in run["refused"])],
        "vectors": {dim: [Householder(dim, seed=seed).v[0].tolist() for seed in _SEEDS] for dim in DIMS},
        "permutations": {dim: [draw(dim, seed, None).tolist() for seed in _SEEDS] for dim in DIMS},
        "shown": (f"type2 {next(iter(wishes))}", "type2") if wishes else _SHOWN,
        "learned": learned,
    }


def _describe_members(dense: dict[str, dict[str, Any]]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return every member of the family by name, and a sentence for each of the users' own that cannot be drawn."""
    members, refused = {}, []
    rows = [name for name in METHODS if name in FAMILY]  # in the order of the tables, then the others
    for name in dict.fromkeys((*rows, *FAMILY)):
        try:
            members[name] = method(name)
            _check_drawn(members[name], dense)
        except Exception as error:  # users' code can fail in any way; the other members are still drawn
            members.pop(name, None)
            refused.append(f"{name}: {error}" if isinstance(error, LrpeError) else f"{name}: {error!r}")
    return members, refused


def method(name: str) -> dict[str, Any]:
    """Return a member's title, colour and parts, and the values of sliders that it sets."""
    config = configure(name, head_dim=64, length=512)
    shown = {"title": find_method(name).title, "colour": look(name).colour}
    if config.steps != "fixed":
        shown |= {"title": f"{name}, equal steps", "stepping": True}
    sliders = {"base": math.log10(config.base), "share": config.rotated_share}
    rotated = {} if config.rotated is None else {"rotated": config.rotated / config.head_dim}
    return shown | parts(config) | sliders | rotated | ({"fade": _FADES[name]} if name in _FADES else {})


def _check_drawn(member: dict[str, Any], dense: dict[str, dict[str, Any]]) -> None:
    """Raise LrpeError for a member with a part that the page does not have."""
    for kind, part in (("bases", "basis"), ("matrices", "matrix"), ("angles", "angles")):
        drawn = {*FORMULAS[kind], *dense[kind], *({"none"} if part == "matrix" else ())}
        require(
            member[part] in drawn or (part == "angles" and member["matrix"] not in TYPES),
            f"its {part}, {member[part]!r}, cannot be drawn.",
        )


def _match_method(kernel: str) -> dict[str, Any]:
    """Return Type 2 with the angles that match a kernel."""
    return method("type2") | {"title": f"Type 2 for {kernel}", "angles": kernel}


def _type_of(matrix: str) -> dict[str, str]:
    """Return the title and the colour of compositions with this Λ."""
    known = TYPES.get(matrix)
    return {"title": METHODS[known].title if known else f"Λ {matrix}", "colour": look(f"identity*{matrix}").colour}


def parts(config: EncodingConfig) -> dict[str, str]:
    """Return the names of P, Λ and α in an encoding's configuration."""
    matrix = "none" if config.matrix == "orthogonal" and config.rotated == 0 else config.matrix
    angles = config.angles if isinstance(config.angles, str) else "given"
    return {"basis": config.basis, "matrix": matrix, "angles": angles}


SCRIPTS = (  # in order of use
    "angles.js",
    "bases.js",
    "position_matrices.js",
    "encoding.js",
    "eigenvalues.js",
    "tokens.js",
    "query_and_key.js",
    "choices.js",
    "numbers.js",
    "matrix_image.js",
    "pictures/kernel.js",
    "pictures/wish.js",
    "pictures/scores.js",
    "pictures/features.js",
    "pictures/plane.js",
    "pictures/path.js",
    "pictures/spectrum.js",
    "pictures/delta.js",
    "controls.js",
    "token_row.js",
    "pictures/weights.js",
    "charts.js",
    "page.js",
)


def write_explorer(file: Path, learned: Sequence[dict[str, Any]] = (), kernels: Sequence[str] = ()) -> Path:
    """Write the page and return its path.

    Args:
        file: the file, which ends in .html.
        learned: runs, as returned by ``read_run``.
        kernels: kernels to match and to draw beside the result, such as "gaussian:16": a name of
            ``lrpe.theory.kernels.KERNELS`` and a width.
    """
    require(
        file.suffix == ".html", f"The explorer's file name must end in .html, such as explorer.html; got {file.name!r}."
    )
    require(file.parent.is_dir(), f"The explorer's folder must exist; got {str(file.parent)!r}.")
    require(not file.is_dir(), f"The explorer is written to a file; {str(file)!r} is a folder.")
    write_atomically(file, explorer(learned, kernels))
    return file


def explorer(learned: Sequence[dict[str, Any]] = (), kernels: Sequence[str] = ()) -> str:
    parts = {
        "/* style */": shared_style() + read("explorer.css"),
        "/* data */": json_in_script(page_data(list(learned), kernels)),
        "/* vega */": code_in_script(vega()),
        "/* code */": code_in_script("\n".join(['"use strict";', *map(read, SCRIPTS)])),
        "<!-- version -->": escape(version("lrpe")),
    }
    return fill(read("page.html"), parts)


def read(name: str) -> str:
    return files("lrpe.lab.report.explorer").joinpath(name).read_text(encoding="utf-8")


def vega() -> str:
    """Return the JavaScript of Vega-Lite and Vega, from the copy in vl-convert."""
    try:
        vl_convert: Any = importlib.import_module("vl_convert")
    except ImportError:
        raise LrpeError("The explorer needs vl-convert-python: pip install 'lrpe[report]'") from None
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def match_kernels(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return {name: {"values", "alpha"}} of kernels such as "gaussian:16": f(m)/f(0), and α by the number of angles.

    Raises:
        LrpeError: a kernel has no such name or width, or there are more than eight.
    """
    require(len(names) <= _MOST_KERNELS, f"The explorer matches at most {_MOST_KERNELS} kernels; got {len(names)}.")
    return {name: _match_kernel(name) for name in names}


def _match_kernel(name: str) -> dict[str, Any]:
    kind, _, width = name.partition(":")
    if kind not in KERNELS:
        raise unknown_name("kernel", kind, KERNELS)
    try:
        kernel = KERNELS[kind](float(width))
    except ValueError as error:
        known = isinstance(error, LrpeError)
        raise LrpeError(
            str(error) if known else f"A kernel is written NAME:WIDTH, such as gaussian:16; got {name!r}."
        ) from None
    f = kernel(torch.arange(_DISTANCES, dtype=torch.float64))
    alpha = {str(count): matching(kernel, count, _DISTANCES).alpha.tolist() for count in COUNTS}
    return {"values": (f / f[0]).tolist(), "alpha": alpha}
