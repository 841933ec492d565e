"""Checkpoints of earlier versions: the moments of optimisers and of angles in today's form."""

import io
import pickle
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from lrpe.encodings.angles import places_of_alpha
from lrpe.errors import LrpeError, require

METADATA, _PREFIX = ".metadata", "optimizer.state."
_RECORDS = ("torch.distributed.checkpoint.", "torch.serialization", "pathlib")  # modules of the classes in an index
_LARGEST = 2**28  # bytes


class _Record:
    """Holds the fields of a pickled object and does nothing."""

    def __new__(cls, *_: Any) -> "_Record":
        return super().__new__(cls)

    def __setstate__(self, fields: Any) -> None:
        if isinstance(fields, dict):  # the state of TensorProperties is a tuple, which is not needed
            vars(self).update(fields)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return an inert replacement of a class in the index; ``LrpeError`` for a class that no index has."""
        if (module, name) == ("torch", "Size"):
            return tuple
        if module.startswith(_RECORDS) or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return _Record
        raise LrpeError(f"it names {module}.{name}, which no checkpoint of lrpe contains. Do not trust its source")


@dataclass(frozen=True)
class _Piece:
    """Some rows of a tensor: where they begin in it, and their bytes in a file."""

    rows_before: tuple[int, ...]
    file: Path
    start: int
    length: int

    def read(self) -> Tensor:
        with self.file.open("rb") as stream:
            stream.seek(self.start)
            content = stream.read(self.length)
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def open_old_state(folder: Path) -> dict[str, Callable[[], Tensor]]:
    """Return a function that reads a whole tensor, for each name, such as "layers.0.weight.exp_avg"."""

    def read(pieces: list[_Piece]) -> Tensor:
        parts = _guarded(folder, lambda: [piece.read() for piece in pieces])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    index = _guarded(folder, lambda: _read_index(folder))
    return {name: partial(read, pieces) for name, pieces in index.items()}


def _guarded(folder: Path, read: Any) -> Any:
    """Call ``read`` and name the folder in its errors. Unpickling damaged data may raise any ``Exception``."""
    try:
        return read()
    except Exception as error:
        raise LrpeError(f"The optimiser's state in {str(folder)!r} cannot be read: {error}.") from error


def _read_index(folder: Path) -> dict[str, list[_Piece]]:
    require((folder / METADATA).stat().st_size <= _LARGEST, f"its index has more than {_LARGEST:,} bytes")
    content = (folder / METADATA).read_bytes()
    _check_numbers(content)
    index = _Unpickler(io.BytesIO(content)).load()
    pieces_by_name: dict[str, list[_Piece]] = {}
    for key, info in index.storage_data.items():
        if key.fqn.startswith(_PREFIX):
            piece = _Piece(key.offset or (), _inside(folder, info.relative_path), int(info.offset), int(info.length))
            pieces_by_name.setdefault(key.fqn.removeprefix(_PREFIX), []).append(piece)
    return {name: sorted(pieces, key=lambda piece: piece.rows_before) for name, pieces in pieces_by_name.items()}


def _check_numbers(content: bytes) -> None:
    """Refuse a memo index beyond the pickle's size, because Python would allocate a list of that length."""
    for opcode, argument, _ in pickletools.genops(content):
        if "PUT" in opcode.name:
            require(int(argument or 0) < len(content), f"its entry {argument} lies beyond its {len(content)} bytes")


def _inside(folder: Path, name: str) -> Path:
    require(Path(name).name == name, f"its index leads out of the folder: {name!r}")
    return folder / name


_POWERS = {"step": 0, "exp_avg": 1, "exp_avg_sq": 2}  # of α in each entry, since ∂L/∂log α = α ∂L/∂α
_REMARK = (
    "This run was started by a version that learned angles α; it continues by learning log α, from the same angles. "
    "Adam's moments were converted for the new parameter."
)


def convert_moments(stored: dict[str, Callable[[], Tensor]], model: Any) -> list[str]:
    """Add the moments of ``log_alpha`` where a run stored those of ``alpha``. The model has its weights already.

    Args:
        stored: for each name, such as "layers.0.weight.exp_avg", a function that reads its tensor.
        model: the model, whose angles are as the run left them.

    Returns:
        What was done, in one line; nothing for a run of this version.
    """
    weights: Any = get_model_state_dict(model)
    places = places_of_alpha([name.removesuffix(".exp_avg") for name in stored], weights)
    for place in places:
        for key, power in _POWERS.items():
            read = stored.get(f"{place}alpha.{key}")
            if read is not None:
                stored[f"{place}log_alpha.{key}"] = partial(_multiply, read, weights[f"{place}start"], power)
    return [_REMARK] if places else []


def _multiply(read: Callable[[], Tensor], start: Tensor, power: int) -> Tensor:
    """Return a moment times α to a power; α is the start as long as log_alpha is 0."""
    moment = read()
    return moment if power == 0 else (moment.double() * start.cpu() ** power).to(moment.dtype)
