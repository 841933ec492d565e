"""A task: a dataset, the model class that learns it, its loss and its metrics, measured on a whole split."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lrpe.errors import LrpeError, require
from lrpe.lab.data.batches import Batches
from lrpe.lab.data.dataset import Dataset, Sample

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Loss:
    """A sum of losses in nats and their number, so that batches of different sizes are weighted correctly."""

    total: Tensor
    count: Tensor


class Task(ABC):
    """The data that an experiment trains on, its model class, its loss and its metrics.

    ``metric`` is the primary entry of ``metrics()``; ``better`` is the direction in which it improves.
    """

    name: str
    metric: str
    better: Literal["higher", "lower"]
    dataset: Dataset
    model_class: type[nn.Module]  # of lrpe.models

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Return the LrpeConfig fields that the data decides: vocab_size, num_labels, pad_token_id, image_size."""

    @abstractmethod
    def collate(self, samples: list[Sample]) -> Batch:
        """Return samples as one batch of tensors, padded where necessary."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the differentiable loss of a batch."""

    @abstractmethod
    def observe(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """Return what the metrics need, one entry per sample: predictions and labels, or sums and counts."""

    @abstractmethod
    def metrics(self, observed: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the metrics of a whole split from the observations of all its samples."""

    def names_per_token(self) -> tuple[str, ...]:
        """Return the entries of a batch that are (batch, n), and that processes may hold in parts.

        Raises:
            LrpeError: the loss is not a sum over tokens.
        """
        raise LrpeError(
            f"context_parallel cuts rows of tokens whose losses add up; the loss of {self.name} does not. Pass "
            "--training.context_parallel 1."
        )

    def batches(self, split: str, size: int, training: bool, **options: Any) -> Batches:
        """Return batches of a split; the options are those of ``Batches``: seed, rank, world, workers."""
        return Batches(self.dataset.splits[split], size, self.collate, training, **options)


@torch.no_grad()
def evaluate(
    task: Task, model: nn.Module, batches: Iterable[Batch | None], device: str | None = None
) -> dict[str, float]:
    """Return the metrics over all batches; each process passes its own batches, and all get the same metrics.

    Raises:
        LrpeError: there are no samples.
    """
    was_training = model.training
    model.eval()
    try:
        parts = [task.observe(model, to_device(batch, device)) for batch in batches if batch is not None]
    finally:
        model.train(was_training)
    mine = {name: torch.cat([part[name].cpu() for part in parts]) for name in parts[0]} if parts else {}
    observed = _gather(mine)
    require(len(observed) > 0, "Evaluation needs at least one sample; the split has none.")
    return task.metrics(observed)


def _gather(mine: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the observations of all processes, joined."""
    if not dist.is_initialized():
        return dict(mine)
    everyone: list[dict[str, Tensor]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, dict(mine))
    some = [part for part in everyone if part]
    return {name: torch.cat([part[name] for part in some]) for name in some[0]} if some else {}


def to_device(batch: Batch, device: str | None) -> Batch:
    return batch if device is None else {name: tensor.to(device) for name, tensor in batch.items()}


_LARGEST = 1e6  # larger values only say that the model has not learned yet, such as a word perplexity of e^39


def describe_metrics(metrics: Mapping[str, float | None], form: str = ",.4g") -> str:
    """Return metrics as one line.

    >>> describe_metrics({"perplexity": 289.912, "word_perplexity": 101675897166494272.0, "bits_per_byte": 8.182})
    'perplexity 289.9, word_perplexity over 1,000,000, bits_per_byte 8.182'

    Args:
        metrics: by name; None means not finite.
        form: the format of a number that is not an integer.
    """
    return ", ".join(f"{name} {_describe(figure, form)}" for name, figure in metrics.items())


def _describe(figure: float | None, form: str) -> str:
    if figure is None:  # how JSON stores a number that is not finite
        return "not finite"
    if isinstance(figure, int):  # a count, such as that of the parameters
        return f"{figure:,}"
    return f"over {_LARGEST:,.0f}" if figure > _LARGEST else f"{figure:{form}}"
