"""A task: a dataset, the model class that learns it, its loss and its metrics."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from lrpe.lab.data.batches import Batches
from lrpe.lab.data.dataset import Dataset, Sample

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Loss:
    """A sum of losses in nats and their number, so that batches of different sizes are weighted correctly."""

    total: Tensor
    count: Tensor


class Task(ABC):
    """What an experiment trains and measures.

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

    def batches(self, split: str, size: int, training: bool, **options: Any) -> Batches:
        """Return batches of a split; the options are those of ``Batches``: seed, rank, world, workers."""
        return Batches(self.dataset.splits[split], size, self.collate, training, **options)
