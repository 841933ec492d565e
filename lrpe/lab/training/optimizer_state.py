"""The optimiser's state in safetensors: one file per writing process, readable by any number of processes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.tensor import DTensor, distribute_tensor

from lrpe.errors import LrpeError, require
from lrpe.lab.training.old_optimizer_state import METADATA, open_old_state
from lrpe.lab.training.processes import rank, world_size

_Read = Callable[[str], Tensor]  # a whole tensor by its name, such as "layers.0.weight.exp_avg"


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


def load_state(folder: Path, model: Any, optimizer: Any) -> None:
    """Load a saved state into the optimiser; ``LrpeError`` if it is incomplete or of another model."""
    read = open_old_state(folder) if (folder / METADATA).exists() else _open_state(folder)
    state: Any = get_optimizer_state_dict(model, optimizer)
    for name, tensors in state["state"].items():
        for key, like in tensors.items():
            tensors[key] = _placed(read(f"{name}.{key}"), like, f"{name}.{key}")
    set_optimizer_state_dict(model, optimizer, state)


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


def _open_state(folder: Path) -> _Read:
    """Return a function that joins a tensor's rows from all files, whose names sort by rank."""
    try:
        shares = [safe_open(file, "pt") for file in sorted(folder.glob("*.safetensors"))]
    except (OSError, SafetensorError) as error:
        raise LrpeError(f"The optimiser's state in {str(folder)!r} cannot be read: {error}.") from error
    holders: dict[str, list[Any]] = {}
    for share in shares:
        for name in share.keys():  # noqa: SIM118 (not a dictionary)
            holders.setdefault(name, []).append(share)

    def read(name: str) -> Tensor:
        require(name in holders, f"The optimiser's state in {str(folder)!r} has no {name}: it is of another model.")
        parts = [share.get_tensor(name) for share in holders[name]]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    return read
