"""A task: a dataset, the head that learns it, its loss, and its metrics."""

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
    """A sum of losses in nats and how many there were, so that batches of any size weigh as they should together."""

    total: Tensor
    count: Tensor


class Task(ABC):
    """What an experiment trains and measures.

    ``metric`` is the primary one of ``metrics()``, and ``better`` says which way it improves.
    """

    name: str
    metric: str
    better: Literal["higher", "lower"]
    dataset: Dataset
    model_class: type[nn.Module]  # of lrpe.models

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """The fields of LrpeConfig that the data decides: vocab_size, num_labels, pad_token_id, image_size."""

    @abstractmethod
    def collate(self, samples: list[Sample]) -> Batch:
        """Samples as one batch of tensors, padded where they must be."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """The loss of a batch, to be differentiated."""

    @abstractmethod
    def observe(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """What the metrics need of a batch, one entry a sample: predictions and labels, or sums and counts."""

    @abstractmethod
    def metrics(self, observed: Mapping[str, Tensor]) -> dict[str, float]:
        """The metrics of a whole split, from what was observed of all its samples."""

    def batches(self, split: str, size: int, training: bool, **options: Any) -> Batches:
        """Batches of a split; the options are those of ``Batches``: seed, rank, world, workers."""
        return Batches(self.dataset.splits[split], size, self.collate, training, **options)
