"""The encodings that a run has learned, layer by layer, as the page takes them."""

from pathlib import Path
from typing import Any

from torch import Tensor

from lrpe.encodings.basis import Basis
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import Encoding, PositionalEncoding
from lrpe.encodings.householder import Householder
from lrpe.encodings.matrix_basis import LearnedOrthogonal
from lrpe.encodings.permutation import Permutation
from lrpe.errors import LrpeError, require
from lrpe.models.block import Block
from lrpe.models.saved import find_model, load_model
from lrpe.report.explorer.given import parts

Layer = dict[str, Any]


def read_run(folder: Path) -> dict[str, Any]:
    """The layers of a model's folder, or of a run's ``best`` or ``last``, that the page can show."""
    require(folder.is_dir(), f"A run is a folder with a model in it; there is no folder {str(folder)!r}.")
    found = find_model(folder)
    model = open_model(found)
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    name = folder.resolve().name
    shown = [block for block in blocks if can_show(block.attention.encoding)]
    layers = [{"run": name} | read_layer(block, model.config.layer_encoding(block.layer)) for block in shown]
    if not layers:
        raise LrpeError(f"The explorer shows encodings P × Λ along a sequence; the model in {str(found)!r} has none.")
    return {"title": name, "layers": layers}


def open_model(folder: Path) -> Any:
    try:
        return load_model(folder)
    except LrpeError:
        raise
    except (OSError, ValueError) as error:  # transformers' own words, of a file that is missing or no JSON
        raise LrpeError(f"The model in {str(folder)!r} cannot be read: {error}") from error


def can_show(encoding: PositionalEncoding) -> bool:
    return isinstance(encoding, Encoding) and encoding.axes == 1


def read_layer(block: Block, config: EncodingConfig) -> Layer:
    """One layer: what all heads share is a list of one."""
    encoding: Any = block.attention.encoding
    r = block.attention.decay.r
    matrix = read_matrix(encoding.matrix, config.matrix)
    decay = [1.0] if r is None else r.tolist()
    return {
        "title": f"layer {block.layer}",
        "dim": encoding.head_dim,
        "heads": max(len(decay), len(matrix.get("alpha") or matrix["permutation"])),
        "choice": parts(config),
        "basis": read_basis(encoding.basis, config.basis),
        "matrix": matrix,
        "decay": decay,
    }


def read_basis(basis: Basis, kind: str) -> Layer:
    if isinstance(basis, Householder):
        return {"kind": kind, "vectors": basis.v.tolist()}
    if isinstance(basis, LearnedOrthogonal):
        rounded = [[round(value, 9) for value in row] for row in basis.dense().real.tolist()]  # d² numbers a layer
        return {"kind": kind, "matrix": rounded}
    return {"kind": kind}


def read_matrix(matrix: Any, kind: str) -> Layer:
    if isinstance(matrix, Permutation):
        return {"kind": kind, "permutation": [permutation_of(cycles) for cycles in matrix.cycles]}
    alternating = getattr(matrix, "alternating", 0)
    return {"kind": kind, "alpha": matrix.angles.scaled().squeeze(-2).tolist(), "alternating": alternating}


def permutation_of(cycles: Tensor) -> list[int]:
    """π: one step along every cycle."""
    order, start, place, length = cycles
    return order[start + (place + 1) % length].tolist()
