"""Context parallelism of a run: groups of processes that read the same samples, each its part of every row."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh

from lrpe.errors import require
from lrpe.lab.tasks.task import Batch, Task
from lrpe.lab.training.processes import world_size
from lrpe.parallel import context, own_part


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
