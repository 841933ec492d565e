"""The checkpoints of a run: folders, complete or absent, with a transformers model and the state of the run.

Their history says which one to resume from and which to keep, and links the last and the best.
"""

import math
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor, distribute_tensor

from lrpe.atomic import remove, sync, sync_folder, temporary_name, write_atomically
from lrpe.encodings.angles import places_of_alpha, start_from_alpha
from lrpe.errors import LrpeError, require
from lrpe.lab.data.cache import hash_files
from lrpe.lab.training.old_checkpoints import METADATA, convert_moments, open_old_state
from lrpe.lab.training.processes import rank, run_on_every, run_on_first, world_size
from lrpe.lab.training.run_files import naming_failure
from lrpe.lab.training.steps import LossScale
from lrpe.models.saved import quietly
from lrpe.schema import conform_known
from lrpe.serialization import read_json, to_json


def save_state(folder: Path, model: Any, optimizer: Any) -> None:
    """Write this process's rows of every sharded tensor; the first process also writes the replicated tensors.

    Learning rates and other hyper-parameters are not written: the configuration has them.
    """
    state: Any = get_optimizer_state_dict(model, optimizer)["state"]
    share = {
        f"{name}.{key}": _own_part(tensor)
        for name, tensors in state.items()
        for key, tensor in tensors.items()
        if isinstance(tensor, DTensor) or rank() == 0
    }
    save_file(share, folder / f"{rank() + 1:05d}-of-{world_size():05d}.safetensors")


def _own_part(tensor: Tensor) -> Tensor:
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach().cpu().contiguous()


def load_state(folder: Path, model: Any, optimizer: Any) -> list[str]:
    """Load a saved state into the optimiser; ``LrpeError`` if it is incomplete or of another model.

    Returns:
        A sentence for each thing that was converted from an earlier version.
    """
    stored = open_old_state(folder) if (folder / METADATA).exists() else _open_state(folder)
    remarks = convert_moments(stored, model)
    state: Any = get_optimizer_state_dict(model, optimizer)
    for name, tensors in state["state"].items():
        for key, like in tensors.items():
            full = f"{name}.{key}"
            require(full in stored, f"The optimiser's state in {str(folder)!r} has no {full}: it is of another model.")
            tensors[key] = _placed(stored[full](), like, full)
    set_optimizer_state_dict(model, optimizer, state)
    return remarks


def _placed(whole: Tensor, like: Tensor, name: str) -> Tensor:
    """Return this process's part of a whole tensor, on the device of ``like``."""
    require(
        whole.shape == like.shape and whole.dtype == like.dtype,
        lambda: (
            f"The optimiser's {name} is {tuple(like.shape)} of {like.dtype}; the checkpoint has "
            f"{tuple(whole.shape)} of {whole.dtype}, so it is of another model."
        ),
    )
    if isinstance(like, DTensor):  # every process has read the whole tensor, so none is sent
        return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
    return whole.to(like.device)


def _open_state(folder: Path) -> dict[str, Callable[[], Tensor]]:
    """Return a function that joins a tensor's rows from all files, for each name, such as "layers.0.weight.exp_avg"."""
    try:  # names of files sort by rank
        shares = [safe_open(file, "pt") for file in sorted(folder.glob("*.safetensors"))]
    except (OSError, SafetensorError) as error:
        raise LrpeError(f"The optimiser's state in {str(folder)!r} cannot be read: {error}.") from error
    holders: dict[str, list[Any]] = {}
    for share in shares:
        for name in share.keys():  # noqa: SIM118 (not a dictionary)
            holders.setdefault(name, []).append(share)
    return {name: partial(_join, name, shares) for name, shares in holders.items()}


def _join(name: str, shares: list[Any]) -> Tensor:
    parts = [share.get_tensor(name) for share in shares]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
WEIGHTS = "model.safetensors"
DONE = "checkpoint.json"  # written last, so that a folder without it is not a checkpoint


@dataclass(frozen=True)
class Progress:
    """Contents of checkpoint.json: the progress of a run at a checkpoint.

    Attributes:
        update: number of finished updates.
        best: the update with the best metric so far, and that metric.
        metrics: metrics of the last evaluation; NaN is None, because JSON has no NaN.
        precision: the state of loss scaling.
        processes: number of processes that wrote the checkpoint.
        sha256: hash of each file, by its path in the folder.
    """

    update: int
    best: tuple[int, float | None] | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)
    precision: LossScale = field(default_factory=LossScale)
    processes: int = 1
    sha256: dict[str, str] = field(default_factory=dict)

    def figures(self) -> dict[str, float]:
        """Return the metrics as floats, with NaN for None."""
        return {name: math.nan if figure is None else figure for name, figure in self.metrics.items()}


def save_checkpoint(folder: Path, model: Any, bare: Any, optimizer: Any, progress: Progress) -> None:
    """Write a checkpoint from all processes. ``bare`` is the transformers model that ``model`` may wrap."""
    temporary = folder.with_name(f".{folder.name}.tmp")  # not random: all processes must write to the same folder
    try:
        run_on_first(lambda: _clear(temporary))
        weights = get_model_state_dict(model, options=_WHOLE)
        run_on_every(lambda: _save_share(temporary, folder, model, optimizer))
        run_on_first(lambda: _complete(temporary, folder, bare, weights, progress))
    finally:
        if rank() == 0:
            remove(temporary)


def _clear(folder: Path) -> None:
    """Create an empty checkpoint folder."""
    with naming_failure(folder):
        remove(folder)
        (folder / "state").mkdir(parents=True)


def _save_share(temporary: Path, folder: Path, model: Any, optimizer: Any) -> None:
    with naming_failure(folder):
        save_state(temporary / "state", model, optimizer)


def _complete(temporary: Path, folder: Path, bare: Any, weights: dict[str, Any], progress: Progress) -> None:
    """Write the files of the first process, and rename the folder once everything is on disk."""
    second = _tied_names(bare)
    once = {name: weights[name] for name in weights if name not in second}
    with naming_failure(folder), quietly():
        bare.save_pretrained(temporary, state_dict=once)
        described = replace(progress, processes=world_size(), sha256=_hashes(temporary))
        write_atomically(temporary / DONE, to_json(asdict(described)))
        sync_folder(temporary)
        remove(folder)  # a damaged checkpoint of the same update
        temporary.rename(folder)
        sync(folder.parent)


def _tied_names(model: nn.Module) -> dict[str, str]:
    """Return {second name: first name} of tied parameters, which are saved under their first name."""
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    every = [(name, first[id(parameter)]) for name, parameter in model.named_parameters(remove_duplicate=False)]
    return {name: original for name, original in every if name != original}


def _hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hash_files(path) for path in files}


def load_checkpoint(folder: Path, model: Any, optimizer: Any) -> list[str]:
    """Load a checkpoint, written by any number of processes, into the model and the optimiser.

    Returns:
        A sentence for each thing that a checkpoint of an earlier version had otherwise.
    """
    load_weights(folder, model)
    return load_state(folder / "state", model, optimizer)


def load_weights(folder: Path, model: nn.Module) -> None:
    """Load the weights of a checkpoint.

    Raises:
        LrpeError: the checkpoint lacks a weight of the model, has another one, or one of another shape.
    """
    tensors = _read_tensors(folder / WEIGHTS)
    wanted = get_model_state_dict(model)
    prefix = "module." if isinstance(model, nn.parallel.DistributedDataParallel) else ""
    second = {name.removeprefix(prefix): first.removeprefix(prefix) for name, first in _tied_names(model).items()}
    for place in places_of_alpha(tensors, wanted):
        start_from_alpha(tensors, place)
    _check_same_tensors(folder, tensors, {name: wanted[name] for name in wanted if name not in second})
    whole: dict[str, Any] = tensors | {name: tensors[first] for name, first in second.items()}
    set_model_state_dict(model, whole, options=StateDictOptions(full_state_dict=True, strict=True))


def _read_tensors(file: Path) -> dict[str, Tensor]:
    require(file.is_file(), f"{str(file.parent)!r} has no {file.name}, so it is not a checkpoint.")
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise LrpeError(f"Weights cannot be read from {str(file)!r}: {error}.") from error


def _check_same_tensors(folder: Path, tensors: dict[str, Tensor], wanted: dict[str, Any]) -> None:
    wrong = [f"{name} is missing" for name in wanted if name not in tensors]
    wrong += [f"{name} is not of this model" for name in tensors if name not in wanted]
    wrong += [
        f"{name} is {tuple(tensors[name].shape)} where the model has {tuple(wanted[name].shape)}"
        for name in wanted
        if name in tensors and tensors[name].shape != wanted[name].shape
    ]
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    require(not wrong, f"The weights in {str(folder)!r} are not those of this model: {'; '.join(wrong[:3])}{more}.")


def read_progress(folder: Path) -> Progress:
    """Return the progress of a checkpoint after checking the hash of every file; ``LrpeError`` if it is damaged."""
    try:
        progress = conform_known(read_json(folder / DONE, dict[str, Any]), Progress)
        for name, digest in progress.sha256.items():
            require(".." not in PurePosixPath(name).parts and not PurePosixPath(name).is_absolute(), f"it names {name}")
            require((folder / name).is_file(), f"{name} is not there")
            require(hash_files(folder / name) == digest, f"{name} is not what was written")
        return progress
    except (OSError, LrpeError) as error:
        raise LrpeError(f"The checkpoint {folder} is damaged: {str(error).rstrip('.')}.") from error


_KEPT = 2  # newest checkpoints, in addition to the best: one is left if the other is damaged


class CheckpointHistory:
    """The folders step-N of a run. Only the first process may call methods that change them."""

    def __init__(self, folder: Path):
        self.run, self.folder = folder, folder / "checkpoints"
        self.damaged: list[str] = []  # messages about damaged checkpoints that were skipped

    def path_of(self, update: int) -> Path:
        return self.folder / f"step-{update:08d}"

    def list_all(self) -> list[Path]:
        """Return the checkpoint folders, newest first."""
        folders = [file.parent for file in self.folder.glob(f"step-*/{DONE}")]
        return sorted((folder for folder in folders if re.fullmatch(r"step-\d{8,}", folder.name)), reverse=True)

    def find_newest(self) -> Progress | None:
        """Return the progress of the newest undamaged checkpoint; rename damaged ones and list them in ``damaged``."""
        self._sweep()
        for folder in self.list_all():
            try:
                return self._read(folder)
            except LrpeError as error:
                self.damaged.append(str(error))
                _put_aside(folder, "damaged")
        return None

    def _read(self, folder: Path) -> Progress:
        progress = read_progress(folder)
        right = self.path_of(progress.update) == folder
        require(right, f"The checkpoint {folder} is damaged: its checkpoint.json is of update {progress.update}.")
        return progress

    def withdraw(self, update: int) -> Progress | None:
        """Rename the checkpoint whose weights diverged, and return the progress of the newest remaining one."""
        if self.path_of(update).exists():
            _put_aside(self.path_of(update), "diverged")
        left = self.find_newest()
        if left is not None:
            self.link(left.update, None if left.best is None else left.best[0])
        for name in ("last", "best"):
            if not (self.run / name).exists():  # a dangling link
                remove(self.run / name)
        return left

    def _sweep(self) -> None:
        """Remove folders that a killed process was writing or removing."""
        begun = [path for path in self.folder.glob("step-*") if not (path / DONE).exists()]
        for path in (*begun, *self.folder.glob(".step-*.tmp")):
            remove(path)

    def link(self, last: int, best: int | None) -> None:
        """Point the links ``last`` and ``best`` at the checkpoints of these updates, and remove old checkpoints."""
        wanted = {"last": self.path_of(last)} | ({} if best is None else {"best": self.path_of(best)})
        for name, folder in wanted.items():
            with naming_failure(self.run / name):
                _link(self.run / name, folder)
        checkpoints = self.list_all()
        needed = {
            *wanted.values(),
            *(self.path_of(best) for best in map(_best_of, checkpoints[:_KEPT]) if best is not None),
        }
        for old in checkpoints[_KEPT:]:
            if old not in needed:
                (old / DONE).unlink()  # first, so that a kill in between leaves no half checkpoint
                remove(old)


def _best_of(checkpoint: Path) -> int | None:
    """Return the best update as of this checkpoint, which is the best again if the run resumes from here."""
    try:
        best = conform_known(read_json(checkpoint / DONE, dict[str, Any]), Progress).best
    except LrpeError:
        return None  # damaged; reported by find_newest if the run needs it
    return None if best is None else best[0]


def _put_aside(folder: Path, why: str) -> None:
    aside = folder.with_name(f"{why}-{folder.name}")
    with naming_failure(aside):
        remove(aside)
        folder.rename(aside)


def _link(name: Path, target: Path) -> None:
    temporary = temporary_name(name)
    temporary.symlink_to(os.path.relpath(target, name.parent))
    temporary.replace(name)
