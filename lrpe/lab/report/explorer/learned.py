"""The encodings that a run has learned, layer by layer, as the page takes them."""

from pathlib import Path
from typing import Any

from torch import Tensor

from lrpe.encodings.basis import Basis, Identity, OddEven
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import Encoding, PositionalEncoding
from lrpe.encodings.householder import Householder
from lrpe.encodings.matrix_basis import Cosine, Fourier
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.encodings.permutation import Permutation
from lrpe.encodings.unitary import Unitary
from lrpe.errors import LrpeError, require
from lrpe.lab.report.explorer.dense import WIDEST, write_basis, write_matrix
from lrpe.lab.report.explorer.page_data import parts
from lrpe.models.block import Block
from lrpe.models.saved import find_model, load_model

Layer = dict[str, Any]


def read_run(folder: Path) -> dict[str, Any]:
    """Return the layers of a model's folder, or of a run's ``best`` or ``last``, that the page can show.

    The result is {"title", "layers", "refused"}; the last has a sentence for each layer that it cannot.
    """
    require(folder.is_dir(), f"A run is a folder with a model in it; there is no folder {str(folder)!r}.")
    found, name = find_model(folder), folder.resolve().name
    model = open_model(found)
    layers: list[Layer] = []
    refused: list[str] = []
    for block in (module for module in model.modules() if isinstance(module, Block)):
        try:
            layers.append({"run": name} | _read_layer(block, model.config.layer_encoding(block.layer)))
        except LrpeError as error:
            refused.append(f"Layer {block.layer} of {name}: {error}")
    if not layers:
        raise LrpeError(
            " ".join([f"The model in {str(found)!r} has no layer that the explorer can show.", *refused[:1]])
        )
    return {"title": name, "layers": layers, "refused": refused}


def open_model(folder: Path) -> Any:
    try:
        return load_model(folder)
    except LrpeError:
        raise
    except (OSError, ValueError) as error:  # transformers' own words, of a file that is missing or no JSON
        raise LrpeError(f"The model in {str(folder)!r} cannot be read: {error}") from error


def _check_shown(encoding: PositionalEncoding) -> None:
    require(
        isinstance(encoding, Encoding) and encoding.axes == 1,
        f"The explorer shows encodings P × Λ along a sequence; this one is {type(encoding).__name__}"
        f"{f' of {encoding.axes} axes' if encoding.axes > 1 else ''}.",
    )


def _check_finite(encoding: Encoding) -> None:
    """Refuse what a diverged run leaves: JSON has no such numbers, and a page none to draw."""
    for name, tensor in encoding.state_dict().items():
        require(bool(tensor.isfinite().all()), f"{name} of its encoding is not finite: the run has diverged.")


def _read_layer(block: Block, config: EncodingConfig) -> Layer:
    """One layer: what all heads share is a list of one."""
    encoding: Any = block.attention.encoding
    _check_shown(encoding)
    _check_finite(encoding)
    r = block.attention.decay.r
    matrix = _read_matrix(encoding.matrix)
    decay = [1.0] if r is None else r.tolist()
    return {
        "title": f"layer {block.layer}",
        "dim": encoding.head_dim,
        "heads": max(len(decay), len(matrix)),
        "choice": parts(config),
        "basis": _read_basis(encoding.basis),
        "matrix": matrix,
        "decay": decay,
    }


def _read_basis(basis: Basis) -> Layer:
    """P as the page takes it: by its formula if it has one, else as numbers."""
    if isinstance(basis, Householder):
        return {"kind": "householder", "vectors": basis.v.tolist()}
    if isinstance(basis, OddEven) and basis.width == basis.dim:
        return {"kind": "odd-even"}
    formulas = {Identity: "identity", Fourier: "fourier", Cosine: "cosine"}
    if type(basis) in formulas:
        return {"kind": formulas[type(basis)]}
    _check_width(basis)
    return write_basis(basis)


def _read_matrix(matrix: Any) -> list[Layer]:
    """Λ as the page takes it, one entry per head that has its own."""
    if isinstance(matrix, Permutation):
        return [{"kind": "permutation", "permutation": _permutation_of(cycles)} for cycles in matrix.cycles]
    kinds = {Unitary: "unitary", Orthogonal: "orthogonal"}
    if type(matrix) in kinds:
        own = {"kind": kinds[type(matrix)], "alternating": getattr(matrix, "alternating", 0)}
        return [own | {"alpha": alpha} for alpha in matrix.angles.scaled().squeeze(-2).tolist()]
    _check_width(matrix)
    return write_matrix(matrix)


def _check_width(factor: Any) -> None:
    require(
        factor.dim <= WIDEST,
        f"{type(factor).__name__} is drawn by its matrix, up to a width of {WIDEST}; got dim={factor.dim}.",
    )


def _permutation_of(cycles: Tensor) -> list[int]:
    """π: one step along every cycle."""
    order, start, place, length = cycles
    return order[start + (place + 1) % length].tolist()
