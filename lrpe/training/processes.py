"""The processes of a run: alone, or those that torchrun started."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist


@contextmanager
def joined() -> Iterator[torch.device]:
    """Join the processes that torchrun started, if it did, and leave them at the end; gives this one's device."""
    device = own_device()
    if "RANK" not in os.environ:
        yield device
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def own_device() -> torch.device:
    """A GPU for each process of a machine; the CPU where there is none."""
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else CPU


CPU = torch.device("cpu")


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def told_by_first(value: Any) -> Any:
    """What the first process has found, on every process."""
    if not dist.is_initialized():
        return value
    told = [value]
    dist.broadcast_object_list(told)
    return told[0]
