"""A checkpoint is a folder, whole or absent: the model as transformers loads it, and the rest of the run's state."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as load_shared
from torch.distributed.checkpoint.state_dict_saver import save as save_shared

from lrpe.data.cache import hash_files
from lrpe.errors import LrpeError
from lrpe.models.quiet import quietly
from lrpe.training.processes import on_first, rank, world
from lrpe.training.writing import naming_failure
from lrpe.whole import sync

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
DONE = "checkpoint.json"  # written last: a folder without it is not a checkpoint


def save_checkpoint(folder: Path, model: Any, bare: Any, optimizer: Any, progress: dict[str, Any]) -> None:
    """Write a checkpoint of all processes. ``bare`` is the model that ``model`` may wrap, as transformers saves it."""
    temporary = folder.with_name(f".{folder.name}.tmp")
    try:
        on_first(lambda: clear(temporary))
        weights = get_model_state_dict(model, options=WHOLE)
        state = {"optimizer": get_optimizer_state_dict(model, optimizer)}
        with naming_failure(folder), quietly():
            writer = FileSystemWriter(temporary / "state", sync_files=False)
            save_shared(state, storage_writer=writer, no_dist=not dist.is_initialized())
        on_first(lambda: complete(temporary, folder, bare, weights, progress))
    finally:
        if rank() == 0:
            shutil.rmtree(temporary, ignore_errors=True)


def clear(folder: Path) -> None:
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    with naming_failure(folder):
        folder.mkdir(parents=True)


def complete(temporary: Path, folder: Path, bare: Any, weights: dict[str, Any], progress: dict[str, Any]) -> None:
    """Write what the first process alone writes; the folder gets its name when all of it is on the disk."""
    second = second_names(bare)
    once = {name: weights[name] for name in weights if name not in second}
    with naming_failure(folder), quietly():
        bare.save_pretrained(temporary, state_dict=once)
        described = progress | {"processes": world(), "sha256": hashes(temporary)}
        (temporary / DONE).write_text(json.dumps(described, indent=2), encoding="utf-8")
        for path in (*temporary.rglob("*"), temporary):
            sync(path)
        shutil.rmtree(folder, ignore_errors=True)  # a damaged one
        temporary.rename(folder)
        sync(folder.parent)


def second_names(model: nn.Module) -> set[str]:
    """Of tied parameters, which are saved under their first."""
    first = {name for name, _ in model.named_parameters()}
    return {name for name, _ in model.named_parameters(remove_duplicate=False)} - first


def hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hash_files(path) for path in files}


def load_checkpoint(folder: Path, model: Any, optimizer: Any) -> None:
    """Put a checkpoint into the model and the optimiser, whatever number of processes wrote it."""
    weights: dict[str, Any] = dict(load_file(folder / "model.safetensors"))
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, strict=False))
    state = {"optimizer": get_optimizer_state_dict(model, optimizer)}
    with quietly():
        load_shared(state, checkpoint_id=folder / "state", no_dist=not dist.is_initialized())
    set_optimizer_state_dict(model, optimizer, state["optimizer"])


def read_progress(folder: Path) -> dict[str, Any]:
    """How far a checkpoint is; ``LrpeError`` if it is damaged."""
    try:
        progress = json.loads((folder / DONE).read_text(encoding="utf-8"))
        for name, digest in progress["sha256"].items():
            if hash_files(folder / name) != digest:
                raise LrpeError(f"{name} is not what was written")
        return progress
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise LrpeError(f"The checkpoint {folder} is damaged: {error}.") from error
