"""One label for a sequence of ids, or for two: the tasks of Long-Range Arena."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrpe.lab.data.dataset import Dataset, Sample
from lrpe.lab.tasks.task import Batch, Loss, Task
from lrpe.models.classification import LrpeForPairClassification, LrpeForSequenceClassification


class SequenceClassification(Task):
    """Samples {"ids", "label"}. ``majority`` is the accuracy of always guessing the most frequent label."""

    metric, better = "accuracy", "higher"
    model_class: type[nn.Module] = LrpeForSequenceClassification

    def __init__(self, dataset: Dataset):
        self.name, self.dataset = dataset.name, dataset
        self.padding: int = dataset.facts["pad_token_id"] or 0  # None if all sequences have the same length

    def fields(self) -> dict[str, Any]:
        names = ("vocab_size", "num_labels", "pad_token_id")
        return {name: self.dataset.facts[name] for name in names} | {"causal": False}

    def collate(self, samples: list[Sample]) -> Batch:
        ids, mask = _pad_ids([sample["ids"] for sample in samples], self.padding)
        return {"input_ids": ids, "attention_mask": mask, "labels": _stack_labels(samples)}

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        total = F.cross_entropy(self.logits(model, batch), batch["labels"], reduction="sum")
        return Loss(total, torch.tensor(len(batch["labels"]), device=total.device))

    def observe(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        logits = self.logits(model, batch)
        losses = F.cross_entropy(logits, batch["labels"], reduction="none")
        return {"predictions": logits.argmax(-1), "labels": batch["labels"], "losses": losses}

    def metrics(self, observed: Mapping[str, Tensor]) -> dict[str, float]:
        labels = observed["labels"]
        return {
            "accuracy": (observed["predictions"] == labels).double().mean().item(),
            "majority": labels.bincount().max().item() / len(labels),
            "loss": observed["losses"].double().mean().item(),
        }

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(**{name: tensor for name, tensor in batch.items() if name != "labels"}).logits.float()


class PairClassification(SequenceClassification):
    """Samples {"ids", "pair_ids", "label"}; the two sequences are encoded separately."""

    model_class = LrpeForPairClassification

    def collate(self, samples: list[Sample]) -> Batch:
        ids, mask = _pad_ids([sample["pair_ids"] for sample in samples], self.padding)
        return super().collate(samples) | {"pair_input_ids": ids, "pair_attention_mask": mask}


def _pad_ids(sequences: Sequence[np.ndarray], padding: int) -> tuple[Tensor, Tensor]:
    """Return ids (batch, longest), padded on the right, and a mask that is 1 except on padding."""
    longest = max(1, *map(len, sequences))
    ids = np.full((len(sequences), longest), padding, dtype=np.int64)
    mask = np.zeros((len(sequences), longest), dtype=np.int64)
    for i, sequence in enumerate(sequences):
        ids[i, : len(sequence)], mask[i, : len(sequence)] = sequence, 1
    return torch.from_numpy(ids), torch.from_numpy(mask)


def _stack_labels(samples: list[Sample]) -> Tensor:
    return torch.tensor([sample["label"] for sample in samples])
