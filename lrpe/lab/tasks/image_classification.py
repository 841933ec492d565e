"""Image classification as DeiT trains it: mixup or cutmix of a batch, and label smoothing."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrpe.errors import LrpeError
from lrpe.lab.data.batches import Batches
from lrpe.lab.data.dataset import Dataset, Draw, Sample
from lrpe.lab.tasks.task import Batch, Loss, Task
from lrpe.models.classification import LrpeForImageClassification
from lrpe.schema import Count, Range

_Alpha = Annotated[float, Range(0, 1000)]  # of the Beta distribution; 0 turns mixing off
_Share = Annotated[float, Range(0, 1)]


@dataclass(frozen=True)
class Mixing:
    """Mixing of a training batch with itself in reverse, and smoothing of labels; the defaults are DeiT's.

    If both α are positive, half of the batches use cutmix and half mixup.
    """

    mixup: _Alpha = 0.8
    cutmix: _Alpha = 1.0
    smoothing: _Share = 0.1


PLAIN = Mixing(0.0, 0.0, 0.0)


class ImageClassification(Task):
    metric, better = "accuracy", "higher"
    model_class = LrpeForImageClassification

    def __init__(self, dataset: Dataset, mixing: Mixing = PLAIN, damaged: _Share = 0.01, copies: Count = 1):
        """Initialise the task.

        Args:
            dataset: the images.
            mixing: how training batches are mixed.
            damaged: the share of damaged files, if more than 10, above which an error is raised.
            copies: how often each image is repeated in a row in training, augmented anew each time.
        """
        self.name, self.dataset, self.mixing, self.damaged, self.copies = dataset.name, dataset, mixing, damaged, copies
        self.labels: int = dataset.facts["labels"]
        self.skipped: set[int] = set()

    def fields(self) -> dict[str, Any]:
        facts = self.dataset.facts
        return {
            "image_size": facts["image size"],
            "num_channels": facts.get("channels", 3),
            "num_labels": self.labels,
            "causal": False,
        }

    def batches(self, split: str, size: int, training: bool, **options: Any) -> Batches:
        return super().batches(split, size, training, copies=self.copies if training else 1, **options)

    def collate(self, samples: list[Sample]) -> Batch:
        """Return pixels, labels and a target distribution, which is one-hot unless the batch was mixed."""
        pixels = torch.from_numpy(np.stack([sample["pixels"] for sample in samples]))
        labels = torch.tensor([sample["label"] for sample in samples])
        batch = {"pixel_values": pixels, "labels": labels, "targets": F.one_hot(labels, self.labels).float()}
        draw = samples[0].get("draw")
        if draw is not None and self.mixing != PLAIN:
            batch["pixel_values"], batch["targets"] = mix(pixels, batch["targets"], self.mixing, draw)
        skipped = [index for sample in samples for index in sample.get("skipped", ())]
        return batch | ({"skipped": torch.tensor(skipped)} if skipped else {})

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        self.count_skipped(batch, "train")
        logits = model(pixel_values=batch["pixel_values"]).logits
        total = -(batch["targets"] * logits.float().log_softmax(-1)).sum()
        return Loss(total, torch.tensor(len(logits), device=logits.device))

    def observe(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        logits = model(pixel_values=batch["pixel_values"]).logits.float()
        best = logits.topk(min(5, self.labels)).indices
        nll = F.cross_entropy(logits, batch["labels"], reduction="none")
        right = best == batch["labels"][:, None]
        return {"first": right[:, 0], "among": right.any(-1), "nll": nll}

    def metrics(self, observed: Mapping[str, Tensor]) -> dict[str, float]:
        return {
            "accuracy": observed["first"].double().mean().item(),
            "top-5 accuracy": observed["among"].double().mean().item(),
            "loss": observed["nll"].double().mean().item(),
        }

    def count_skipped(self, batch: Batch, split: str) -> None:
        """Report each damaged file once, and raise ``LrpeError`` if there are too many."""
        for index in batch.get("skipped", torch.tensor([])).tolist():
            if index not in self.skipped:
                self.skipped.add(int(index))
                files: Any = self.dataset.splits[split]
                print(f"{files.files[int(index)]} cannot be decoded; using the next file instead.", file=sys.stderr)
        if len(self.skipped) > max(10, self.damaged * len(self.dataset.splits[split])):
            raise LrpeError(
                f"{len(self.skipped)} files of {self.name} are damaged, more than damaged={self.damaged:g} allows; "
                "replace them."
            )


def mix(pixels: Tensor, targets: Tensor, mixing: Mixing, draw: Draw) -> tuple[Tensor, Tensor]:
    """Mix a batch with itself in reverse, by mixup (Zhang et al., 2018) or cutmix (Yun et al., 2019)."""
    generator = draw.generator()
    targets = targets * (1 - mixing.smoothing) + mixing.smoothing / targets.shape[-1]
    cut = mixing.cutmix > 0 and (mixing.mixup == 0 or generator.random() < 0.5)
    alpha = mixing.cutmix if cut else mixing.mixup
    if alpha == 0:
        return pixels, targets
    kept = generator.beta(alpha, alpha)
    if cut:
        pixels, kept = _cut_and_paste(pixels, kept, generator)
    else:
        pixels = pixels * kept + pixels.flip(0) * (1 - kept)
    return pixels.float(), (targets * kept + targets.flip(0) * (1 - kept)).float()


def _cut_and_paste(pixels: Tensor, kept: float, generator: np.random.Generator) -> tuple[Tensor, float]:
    """Paste a box of the reversed batch into each image; also return the share of the image that remains."""
    height, width = pixels.shape[2:]
    half = np.array([height, width]) * np.sqrt(1 - kept) / 2
    middle = generator.integers([height, width])
    top, left = np.clip(middle - half, 0, [height, width]).astype(int)
    bottom, right = np.clip(middle + half, 0, [height, width]).astype(int)
    mixed = pixels.clone()
    mixed[:, :, top:bottom, left:right] = pixels.flip(0)[:, :, top:bottom, left:right]
    return mixed, 1 - float((bottom - top) * (right - left)) / (height * width)
