"""Predict tokens at marked positions: the task of the probes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrpe.lab.data.dataset import Dataset, Sample
from lrpe.lab.data.probes.probe import NO_TARGET
from lrpe.lab.tasks.task import Batch, Loss, Task
from lrpe.models.language_models import LrpeForCausalLM


class TokenPrediction(Task):
    """Samples {"ids", "targets"}: cross-entropy and accuracy over the positions that have a target, read causally.

    ``accuracy`` counts tokens, and ``exact`` whole sequences in which every token is right. The loss selects the best
    checkpoint: a share of right answers does not improve any more once it is 1.
    """

    metric, better = "loss", "lower"
    model_class = LrpeForCausalLM

    def __init__(self, dataset: Dataset):
        self.name, self.dataset = dataset.name, dataset

    def fields(self) -> dict[str, Any]:
        return {"vocab_size": self.dataset.facts["vocab_size"], "causal": True}

    def collate(self, samples: list[Sample]) -> Batch:
        """Pad on the right, where a causal model does not see it."""
        padding = self.dataset.facts["pad_token_id"]
        ids = _pad([sample["ids"] for sample in samples], padding)
        return {"input_ids": ids, "targets": _pad([sample["targets"] for sample in samples], NO_TARGET)}

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        logits, targets = _answer(model, batch)
        return Loss(F.cross_entropy(logits, targets, reduction="sum"), torch.tensor(len(targets), device=logits.device))

    def observe(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        logits, targets = _answer(model, batch)
        asked = batch["targets"] != NO_TARGET
        per_token = {
            "nats": F.cross_entropy(logits, targets, reduction="none").double(),
            "right": (logits.argmax(-1) == targets).double(),
        }
        sums = {name: _sum_per_sample(values, asked) for name, values in per_token.items()}
        return sums | {"asked": asked.sum(-1)}

    def metrics(self, observed: Mapping[str, Tensor]) -> dict[str, float]:
        asked, right = observed["asked"], observed["right"]
        total = asked.sum()
        return {
            "accuracy": (right.sum() / total).item(),
            "exact": (right == asked).double().mean().item(),
            "loss": (observed["nats"].sum() / total).item(),
        }


def _answer(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the logits (targets, vocabulary) at the positions that have a target, and the targets."""
    asked = batch["targets"] != NO_TARGET
    logits = model(input_ids=batch["input_ids"], use_cache=False).logits
    return logits[asked].float(), batch["targets"][asked]


def _sum_per_sample(values: Tensor, asked: Tensor) -> Tensor:
    """Return the sums of one value per target, (batch,)."""
    whole = torch.zeros(asked.shape, dtype=values.dtype, device=values.device)
    whole[asked] = values
    return whole.sum(-1)


def _pad(rows: list[np.ndarray], filler: int) -> Tensor:
    longest = max(map(len, rows))
    padded = np.full((len(rows), longest), filler, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded)
