"""A checkpoint is a folder, whole or absent: the model as transformers loads it, and the rest of the run's state."""

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
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
from lrpe.training.processes import barrier, rank, world

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
DONE = "checkpoint.json"  # written last: a folder without it is not a checkpoint


def save_checkpoint(folder: Path, model: Any, bare: Any, optimizer: Any, progress: dict[str, Any]) -> None:
    """Write a checkpoint of all processes. ``bare`` is the model that ``model`` may wrap, as transformers saves it."""
    temporary = folder.with_name(f".{folder.name}.tmp")
    if rank() == 0:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    barrier()
    weights = get_model_state_dict(model, options=WHOLE)
    state = {"optimizer": get_optimizer_state_dict(model, optimizer)}
    with quietly():
        save_shared(state, checkpoint_id=temporary / "state", no_dist=not dist.is_initialized())
    torch.save(torch.get_rng_state(), temporary / f"random-{rank()}.pt")
    if rank() == 0:
        with quietly():
            bare.save_pretrained(temporary, state_dict=weights)
        described = progress | {"processes": world(), "sha256": hash_files(temporary / "model.safetensors")}
        (temporary / DONE).write_text(json.dumps(described, indent=2), encoding="utf-8")
        flush(temporary)
    barrier()
    if rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    barrier()


def load_checkpoint(folder: Path, model: Any, optimizer: Any) -> dict[str, Any]:
    """Put a checkpoint into the model and the optimiser, and give back how far the run had come."""
    from safetensors.torch import load_file

    progress = read_progress(folder)
    weights: dict[str, Any] = dict(load_file(folder / "model.safetensors"))
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, strict=False))
    state = {"optimizer": get_optimizer_state_dict(model, optimizer)}
    with quietly():
        load_shared(state, checkpoint_id=folder / "state", no_dist=not dist.is_initialized())
    set_optimizer_state_dict(model, optimizer, state["optimizer"])
    random = folder / f"random-{rank()}.pt"
    if progress["processes"] == world() and random.exists():
        torch.set_rng_state(torch.load(random, weights_only=True))
    return progress


def read_progress(folder: Path) -> dict[str, Any]:
    """How far a checkpoint is; ``LrpeError`` if it is damaged."""
    try:
        progress = json.loads((folder / DONE).read_text(encoding="utf-8"))
        if hash_files(folder / "model.safetensors") != progress["sha256"]:
            raise LrpeError("its weights are not those that were written")
        return progress
    except (OSError, ValueError, KeyError) as error:
        raise LrpeError(f"The checkpoint {folder} is damaged: {error}.") from error


def find_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run from the newest on."""
    return sorted((path.parent for path in folder.glob(f"step-*/{DONE}")), reverse=True)


def flush(folder: Path) -> None:
    """Onto the disk, so that a power cut after the renaming finds it there."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())


@contextmanager
def quietly() -> Iterator[None]:
    """Without transformers' bar for every file, and without torch's warning that one process is not several."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            yield
    finally:
        if shown:
            logging.enable_progress_bar()
