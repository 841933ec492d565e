"""The batches and random seed of each update. Batches do not depend on how processes and steps share them."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

from lrpe.errors import require
from lrpe.lab.data.batches import Batches
from lrpe.lab.tasks.task import Batch, Task
from lrpe.lab.training.processes import rank, world_size


class Steps:
    """Batches of ``batch`` samples per update; each process takes its share in ``accumulated`` steps.

    ``micro_batch`` is the number of samples per step; 0 takes the whole share. An incomplete last batch is dropped.
    """

    def __init__(self, task: Task, batch: int, micro_batch: int = 0, **options: Any):
        share = batch // world_size()
        self.size = min(micro_batch or share, share)  # samples per step
        require(
            batch % world_size() == 0 and self.size >= 1 and share % self.size == 0,
            f"batch must divide evenly among processes, and each share into micro-batches; got batch={batch}, "
            f"processes={world_size()}, micro_batch={micro_batch}.",
        )
        self.accumulated = share // self.size
        self.batches = task.batches("train", self.size, training=True, rank=rank(), world=world_size(), **options)
        self.updates_per_epoch = len(self.batches) // self.accumulated
        require(self.updates_per_epoch >= 1, f"batch must not exceed the samples of an epoch; got batch={batch}.")

    def after(self, update: int) -> Iterator[Batch]:
        """Yield the batches after ``update`` updates, without end."""
        epoch, start = divmod(update, self.updates_per_epoch)
        while True:
            left = (self.updates_per_epoch - start) * self.accumulated
            yield from islice(self.batches.epoch(epoch, start * self.accumulated), left)
            epoch, start = epoch + 1, 0


def build_validation_batches(task: Task, size: int, limit: int, workers: int) -> Batches:
    """Return batches of the first ``limit`` validation samples over all processes; 0 takes all samples."""
    options = {"rank": rank(), "world": world_size(), "workers": workers, "limit": limit}
    return task.batches("validation", size, training=False, **options)


def measure(batch: Batch) -> tuple[int, str]:
    """Return the size of a batch and its unit: tokens, or samples if it has no tokens."""
    if "input_ids" in batch:
        return batch["input_ids"].numel(), "tokens"
    return len(next(iter(batch.values()))), "samples"


def draw_seeds(seed: int, updates: int) -> np.ndarray:
    """Return a seed per update for this process.

    Everything random in an update comes from its seed, so checkpoints need no generator state.
    """
    return np.random.SeedSequence((seed, rank())).generate_state(updates, np.uint64) >> np.uint64(1)


def set_seed(seed: int, device: torch.device) -> None:
    """Seed torch on this device; torch.manual_seed is slower because it looks for every kind of device."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
