"""A model on one process, on several that each have all of it, or on several that each have a share."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from lrpe.lab.training.processes import world_size


class Parallel(ABC):
    """How processes share a model. Gradients become their mean over all processes in the last step of an update."""

    @abstractmethod
    def wrap(self, model: Any) -> Any:
        """The model as it trains, the same on all processes."""

    @abstractmethod
    def step(self, model: Any, last: bool) -> AbstractContextManager:
        """The surroundings of a step, forward and backward."""

    @abstractmethod
    def unsharded(self, model: Any) -> AbstractContextManager:
        """The model as a process may call it on its own, as often as it has batches."""


class _SingleProcess(Parallel):
    def wrap(self, model: Any) -> Any:
        return model

    def step(self, model: Any, last: bool) -> AbstractContextManager:
        return nullcontext()

    def unsharded(self, model: Any) -> AbstractContextManager:
        return nullcontext(model)


class _Replicated(Parallel):
    """DistributedDataParallel. What is measured has the buffers of the first process, such as batch norm's averages."""

    def wrap(self, model: Any) -> Any:
        device = next(model.parameters()).device
        own = [device] if device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(model, own, gradient_as_bucket_view=True)

    def step(self, model: Any, last: bool) -> AbstractContextManager:
        return nullcontext() if last else model.no_sync()

    def unsharded(self, model: Any) -> AbstractContextManager:
        _broadcast_from_first(model.module.buffers())
        return nullcontext(model.module)


class Sharded(Parallel):
    """FSDP2: parameters, gradients and the optimiser's state in shares, the blocks gathered one at a time."""

    def wrap(self, model: Any) -> Any:
        _broadcast_from_first([*model.parameters(), *model.buffers()])
        mesh = init_device_mesh(next(model.parameters()).device.type, (world_size(),))
        for block in [part for part in model.modules() if type(part).__name__ in model._no_split_modules]:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def step(self, model: Any, last: bool) -> AbstractContextManager:
        model.set_requires_gradient_sync(last)
        return nullcontext()

    @contextmanager
    def unsharded(self, model: Any) -> Iterator[Any]:
        _broadcast_from_first(model.buffers())
        parts = [part for part in model.modules() if isinstance(part, FSDPModule)]
        for part in parts:
            part.unshard()
            part.set_reshard_after_forward(False, recurse=False)
        try:
            yield model
        finally:
            for part in parts:
                part.set_reshard_after_forward(part is not model, recurse=False)
                part.reshard()


def _broadcast_from_first(tensors: Any) -> None:
    """The values of the first process, on every process."""
    with torch.no_grad():
        for tensor in tensors:
            dist.broadcast(tensor, 0)


_PARALLEL: dict[str, type[Parallel]] = {"ddp": _Replicated, "fsdp": Sharded}


def choose_parallel(name: str) -> Parallel:
    return _PARALLEL[name]() if dist.is_initialized() else _SingleProcess()
