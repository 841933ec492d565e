"""The learned encodings of a run, layer by layer, as data for the page."""

from pathlib import Path
from typing import Any

from torch import Tensor

from lrpe.encodings.basis import Basis, Householder, Identity, OddEven
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import Encoding, PositionalEncoding
from lrpe.encodings.matrix_basis import Cosine, Fourier
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.encodings.permutation import Permutation
from lrpe.encodings.unitary import Unitary
from lrpe.errors import LrpeError, require
from lrpe.lab.report.explorer.dense import WIDEST, write_basis, write_matrix
from lrpe.lab.report.explorer.page import parts
from lrpe.models.block import Block
from lrpe.models.saved import find_model, load_model

Layer = dict[str, Any]


def read_run(folder: Path) -> dict[str, Any]:
    """Read the layers of a model's folder, or of a run's ``best`` or ``last``.

    Returns:
        {"title", "layers", "refused"}; ``refused`` has a sentence per layer that the page cannot show.

    Raises:
        LrpeError: the folder has no readable model, or none of its layers can be shown.
    """
    require(folder.is_dir(), f"A run is a folder with a model; there is no folder {str(folder)!r}.")
    model_folder, name = find_model(folder), folder.resolve().name
    model = open_model(model_folder)
    layers: list[Layer] = []
    refused: list[str] = []
    for block in (module for module in model.modules() if isinstance(module, Block)):
        try:
            layers.append({"run": name} | _read_layer(block, model.config.layer_encoding(block.layer)))
        except LrpeError as error:
            refused.append(f"Layer {block.layer} of {name}: {error}")
    if not layers:
        raise LrpeError(
            " ".join([f"The model in {str(model_folder)!r} has no layer that the explorer can show.", *refused[:1]])
        )
    return {"title": name, "layers": layers, "refused": refused}


def open_model(folder: Path) -> Any:
    try:
        return load_model(folder)
    except LrpeError:
        raise
    except (OSError, ValueError) as error:  # transformers' errors for a missing or damaged file
        raise LrpeError(f"The model in {str(folder)!r} cannot be read: {error}") from error


def _check_shown(encoding: PositionalEncoding) -> None:
    require(
        isinstance(encoding, Encoding) and encoding.axes == 1,
        f"The explorer shows encodings P × Λ along a sequence; this one is {type(encoding).__name__}"
        f"{f' of {encoding.axes} axes' if encoding.axes > 1 else ''}.",
    )
    require(
        not (isinstance(encoding, Encoding) and encoding.matrix.has_key_phase),
        "The explorer draws queries and keys that turn alike; the keys of this encoding have a learned phase δ.",
    )


def _check_finite(encoding: Encoding) -> None:
    """Raise ``LrpeError`` for NaN or infinity, which a diverged run leaves and JSON cannot hold."""
    for name, tensor in encoding.state_dict().items():
        require(bool(tensor.isfinite().all()), f"{name} of its encoding is not finite: the run has diverged.")


def _read_layer(block: Block, config: EncodingConfig) -> Layer:
    """Return the data of one layer; a list of length 1 is shared by all heads."""
    encoding: Any = block.attention.encoding
    _check_shown(encoding)
    _check_finite(encoding)
    decays = block.attention.decay
    matrix = _read_matrix(encoding.matrix)
    decay = [1.0] if decays is None else decays.rates().tolist()
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
    """Return P as the name of a formula if the page has one, else as numbers."""
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
    """Return Λ, one entry per head, or one entry if all heads share it."""
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
        f"{type(factor).__name__} has no formula on the page, so dim must be at most {WIDEST}; got dim={factor.dim}.",
    )


def _permutation_of(cycles: Tensor) -> list[int]:
    """Return π, which moves every element one step along its cycle."""
    order, start, offset, length = cycles
    return order[start + (offset + 1) % length].tolist()
