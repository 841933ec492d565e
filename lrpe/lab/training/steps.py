"""The parts of an update besides the model: its batches, its random seed, mixed precision and gradient clipping.

Batches do not depend on how processes and steps share them.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from lrpe.errors import require
from lrpe.lab.data.batches import Batches
from lrpe.lab.tasks.task import Batch, Task
from lrpe.lab.training.processes import rank, world_size
from lrpe.lab.training.settings import PrecisionKind


class Steps:
    """Batches of ``batch`` samples per update; each process takes its share in ``accumulated`` steps.

    ``micro_batch`` is the number of samples per step; 0 takes the whole share. An incomplete last batch is dropped.
    ``context`` consecutive processes take the same share.
    """

    def __init__(self, task: Task, batch: int, micro_batch: int = 0, context: int = 1, **options: Any):
        shares = world_size() // context
        share = batch // shares
        self.size = min(micro_batch or share, share)  # samples per step
        require(
            batch % shares == 0 and self.size >= 1 and share % self.size == 0,
            f"batch must divide evenly among processes, and each share into micro-batches; got batch={batch}, "
            f"processes={world_size()}, micro_batch={micro_batch}, context_parallel={context}.",
        )
        self.accumulated = share // self.size
        self.batches = task.batches("train", self.size, training=True, rank=rank() // context, world=shares, **options)
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


@dataclass(frozen=True)
class LossScale:
    """The factor of the loss, and the number of updates since a gradient last overflowed."""

    scale: float = 1.0
    held: int = 0


class Precision:
    """Autocast to a number format. The loss is multiplied by ``scale`` and the gradient divided by it.

    float16 ranges from 6e-8 to 65504, so its scale adapts: an overflow of the gradient skips the update and halves the
    scale; ``PATIENCE`` updates without one double it. It starts as low as fairseq's because our loss, too, is a sum
    over tokens and not their mean. The scale of other formats is 1.
    """

    START, PATIENCE = 2.0**7, 2000

    def __init__(self, kind: PrecisionKind, device: torch.device):
        self.dtype, self.device = getattr(torch, kind), device
        self.searches = kind == "float16"
        self.scale, self.held = self.START if self.searches else 1.0, 0

    def autocast(self) -> AbstractContextManager:
        return nullcontext() if self.dtype == torch.float32 else torch.autocast(self.device.type, self.dtype)

    def accept(self, norm: float) -> bool:
        """Return whether to make an update with this gradient norm, and adapt the scale for the next update."""
        if not self.searches:
            return True
        fits = math.isfinite(norm)
        self.held = self.held + 1 if fits else 0
        if not fits:
            self.scale /= 2
        elif self.held % self.PATIENCE == 0:
            self.scale *= 2
        require(self.scale >= 2**-14, "A gradient overflows float16 at every loss scale. Use bfloat16 or float32.")
        return fits

    def state(self) -> LossScale:
        return LossScale(self.scale, self.held)

    def restore(self, state: LossScale) -> None:
        self.scale, self.held = state.scale, state.held


def scale_and_clip_(gradients: list[Tensor], factor: float, largest: float) -> float:
    """Multiply gradients in place by ``factor``, clip their norm to ``largest`` unless that is 0.

    Returns:
        The norm before clipping.
    """
    # torch's _foreach functions make one pass for scaling and clipping; clip_grad_norm_ would make a second one.
    measured = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))  # type: ignore[attr-defined]
    norm = float(measured.full_tensor() if isinstance(measured, DTensor) else measured) * factor
    if 0 < largest < norm:
        factor *= largest / norm
    torch._foreach_mul_(gradients, factor)  # type: ignore[attr-defined]
    return norm
