"""Classify or score one sentence or a pair of sentences: the GLUE tasks."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from torch import Tensor, nn

from lrpe.errors import require
from lrpe.lab.data.dataset import Dataset, Sample
from lrpe.lab.data.text.tokenizer import Tokenizer
from lrpe.lab.tasks.task import Batch, Loss, Task
from lrpe.models.classification import LrpeForSequenceClassification

_Score = Callable[[np.ndarray, np.ndarray], float]  # of predictions and labels


def _correlate(measure: Callable) -> _Score:
    """Return a correlation that is 0, not NaN, if all predictions or all labels are equal."""

    def score(predictions: np.ndarray, labels: np.ndarray) -> float:
        if len(labels) < 2 or np.ptp(predictions) == 0 or np.ptp(labels) == 0:
            return 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about nearly constant inputs
            return float(measure(predictions, labels).statistic)

    return score


METRICS: dict[str, _Score] = {
    "accuracy": lambda predictions, labels: float(accuracy_score(labels, predictions)),
    "matthews": lambda predictions, labels: float(matthews_corrcoef(labels, predictions)),
    "f1": lambda predictions, labels: float(f1_score(labels, predictions, zero_division=0)),  # type: ignore[arg-type]
    "pearson": _correlate(pearsonr),
    "spearman": _correlate(spearmanr),
}


class SentenceClassification(Task):
    """Sentences in RoBERTa's format, <s> a </s></s> b </s>, scored by the task's GLUE metric.

    With a vocabulary without <s>, such as GPT-2's, </s> comes first: adding <s> would change the size of the
    pre-trained embedding. The paper calls its STS-B result accuracy, which is undefined for a similarity between 0 and
    5; ours is Pearson's correlation.
    """

    better = "higher"
    model_class = LrpeForSequenceClassification

    def __init__(self, dataset: Dataset, tokenizer: Tokenizer, length: int = 512):
        require(
            length >= 8,
            f"length must be at least 8, for the special tokens of a pair and some words; got length={length}.",
        )
        self.name, self.dataset, self.length = dataset.name, dataset, length
        self.tokenizer = tokenizer.with_specials("pad", "eos")
        self.labels: int = dataset.facts["labels"]
        self.metric: str = dataset.facts["metric"]

    def fields(self) -> dict[str, Any]:
        return {
            "vocab_size": len(self.tokenizer),
            "num_labels": self.labels,
            "pad_token_id": self.tokenizer.specials["pad"],
            "max_position_embeddings": self.length,
        }

    def encode(self, sample: Sample) -> np.ndarray:
        """Return the ids of a sample; if too long, the longer sentence is cut first."""
        texts = [sample["first"]] if sample["second"] is None else [sample["first"], sample["second"]]
        ids = self.tokenizer.encode(texts)
        marks = self.tokenizer.specials
        room = self.length - 2 * len(ids)
        while sum(map(len, ids)) > room:
            longest = max(range(len(ids)), key=lambda i: len(ids[i]))
            rest = sum(len(part) for i, part in enumerate(ids) if i != longest)
            shorter = max(room - rest, room // len(ids))
            ids[longest] = ids[longest][:shorter]
        parts = [[marks.get("bos", marks["eos"])], ids[0], [marks["eos"]]]
        if len(ids) == 2:
            parts += [[marks["eos"]], ids[1], [marks["eos"]]]
        return np.concatenate(parts).astype(np.int64)

    def collate(self, samples: list[Sample]) -> Batch:
        rows = [self.encode(sample) for sample in samples]
        width = max(map(len, rows))
        ids = np.full((len(rows), width), self.tokenizer.specials["pad"], dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)], mask[i, : len(row)] = row, 1
        kind = torch.float32 if self.labels == 1 else torch.int64
        labels = torch.tensor([sample["label"] for sample in samples], dtype=kind)
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask), "labels": labels}

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        logits, labels = self.logits(model, batch), batch["labels"]
        if self.labels == 1:
            total = F.mse_loss(logits[:, 0], labels, reduction="sum")
        else:
            total = F.cross_entropy(logits, labels, reduction="sum")
        return Loss(total, torch.tensor(len(labels), device=labels.device))

    def observe(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        logits = self.logits(model, batch)
        return {"predictions": logits[:, 0] if self.labels == 1 else logits.argmax(-1), "labels": batch["labels"]}

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["input_ids"], batch["attention_mask"]).logits.float()

    def metrics(self, observed: Mapping[str, Tensor]) -> dict[str, float]:
        """Return the task's metric and the usual ones beside it: Spearman's correlation, or accuracy and F1."""
        predictions, labels = observed["predictions"].numpy(), observed["labels"].numpy()
        names = ["pearson", "spearman"] if self.labels == 1 else ["accuracy", *(["f1"] if self.labels == 2 else [])]
        return {name: METRICS[name](predictions, labels) for name in dict.fromkeys([self.metric, *names])}
