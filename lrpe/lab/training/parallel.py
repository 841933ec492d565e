"""How processes share a run: a replica or a shard of the model each, and parts of the rows of a batch."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from lrpe.errors import require
from lrpe.lab.tasks.task import Batch, Task
from lrpe.lab.training.processes import world_size
from lrpe.parallel import context, own_part


class Parallel(ABC):
    """A way for processes to share a model. The last step of an update averages gradients over all processes."""

    @abstractmethod
    def wrap(self, model: Any) -> Any:
        """Return the model to train, with equal weights on all processes."""

    @abstractmethod
    def step(self, model: Any, last: bool) -> AbstractContextManager:
        """Return the context in which a forward and backward pass runs."""

    @abstractmethod
    def unsharded(self, model: Any) -> AbstractContextManager:
        """Yield a model that each process may call on its own, as evaluation does: batches may differ in number."""


class _SingleProcess(Parallel):
    def wrap(self, model: Any) -> Any:
        return model

    def step(self, model: Any, last: bool) -> AbstractContextManager:
        return nullcontext()

    def unsharded(self, model: Any) -> AbstractContextManager:
        return nullcontext(model)


class _Replicated(Parallel):
    """DistributedDataParallel. Evaluation uses the buffers of the first process, such as the means of batch norm."""

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
    """FSDP2: parameters, gradients and optimiser state are sharded, and blocks are gathered one at a time."""

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
    """Overwrite tensors in place with those of the first process."""
    with torch.no_grad():
        for tensor in tensors:
            dist.broadcast(tensor, 0)


_PARALLEL: dict[str, type[Parallel]] = {"ddp": _Replicated, "fsdp": Sharded}


def choose_parallel(name: str) -> Parallel:
    return _PARALLEL[name]() if dist.is_initialized() else _SingleProcess()


class Contexts:
    """The processes as a mesh of data × context: the ``size`` processes of a context share the rows of a batch.

    Replicas or shards of the model are over all processes. Losses and gradients are sums over tokens, so that adding
    them up over all processes gives those of one process, however rows and batches are cut.
    """

    def __init__(self, size: int, device: torch.device):
        require(
            world_size() % size == 0,
            f"context_parallel must divide the number of processes; got context_parallel={size} and {world_size()} "
            "processes. Start the run by torchrun with as many.",
        )
        self.group: Any = None
        if size > 1:
            mesh = init_device_mesh(device.type, (world_size() // size, size), mesh_dim_names=("data", "context"))
            self.group = mesh.get_group("context")

    def enter(self) -> AbstractContextManager:
        """Return the context of a forward pass on parts of rows."""
        return nullcontext() if self.group is None else context(self.group)

    def cut(self, task: Task, batch: Batch) -> Batch:
        """Return this process's part of every row of a batch."""
        if self.group is None:
            return batch
        along = task.names_per_token()
        with self.enter():
            return {name: own_part(value) if name in along else value for name, value in batch.items()}
