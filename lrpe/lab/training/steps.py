"""The batches of a run, in an order that does not depend on how many processes and steps share an update."""

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
    """Batches of ``batch`` samples an update, of which each process takes its share in ``accumulated`` steps.

    ``micro_batch`` is how many samples it takes at a time, all if 0. What is left of an epoch is left out of it.
    """

    def __init__(self, task: Task, batch: int, micro_batch: int = 0, **options: Any):
        share = batch // world_size()
        self.size = min(micro_batch or share, share)  # of a step
        require(
            batch % world_size() == 0 and self.size >= 1 and share % self.size == 0,
            f"Processes share a batch evenly and take their share in equal parts; got batch={batch}, "
            f"processes={world_size()}, micro_batch={micro_batch}.",
        )
        self.accumulated = share // self.size
        self.batches = task.batches("train", self.size, training=True, rank=rank(), world=world_size(), **options)
        self.updates_per_epoch = len(self.batches) // self.accumulated
        require(self.updates_per_epoch >= 1, f"An epoch has one full batch or more; got batch={batch}.")

    def after(self, update: int) -> Iterator[Batch]:
        """The steps after so many updates, epoch after epoch."""
        epoch, start = divmod(update, self.updates_per_epoch)
        while True:
            left = (self.updates_per_epoch - start) * self.accumulated
            yield from islice(self.batches.epoch(epoch, start * self.accumulated), left)
            epoch, start = epoch + 1, 0


def build_validation_batches(task: Task, size: int, limit: int, workers: int) -> Batches:
    """The first ``limit`` samples of the validation split, or all if that is 0, over all processes."""
    options = {"rank": rank(), "world": world_size(), "workers": workers, "limit": limit}
    return task.batches("validation", size, training=False, **options)


def measure(batch: Batch) -> tuple[int, str]:
    """How much is in a batch: tokens, or samples where there are none."""
    if "input_ids" in batch:
        return batch["input_ids"].numel(), "tokens"
    return len(next(iter(batch.values()))), "samples"


def draw_seeds(seed: int, updates: int) -> np.ndarray:
    """One an update, for this process alone."""
    return np.random.SeedSequence((seed, rank())).generate_state(updates, np.uint64) >> np.uint64(1)


def set_seed(seed: int, device: torch.device) -> None:
    """As torch.manual_seed, which takes longer: it also looks for devices that are not there."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
