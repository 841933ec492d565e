"""Masked language modelling: predict hidden tokens from both sides; measured in bits."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from lrpe.lab.data.batches import Batches
from lrpe.lab.data.dataset import Sample
from lrpe.lab.data.text.masking import MaskedWindows, make_masking
from lrpe.lab.data.text.text_dataset import TextDataset
from lrpe.lab.tasks.task import Batch, Loss, Task
from lrpe.lab.tasks.token_losses import observe_tokens, pad_tokens, token_fields, token_metrics, total_loss
from lrpe.models.language_models import LrpeForMaskedLM


class MaskedLanguageModelling(Task):
    """RoBERTa's task: predict the share ``rate`` of the tokens, or of whole words.

    Of these, 80 % become <mask>, 10 % a random token and 10 % stay; drawn anew in every epoch, fixed in evaluation.
    ``tokenizer`` is the dataset's, with <mask> and <pad> added if missing. The paper's "loss" is in bits.
    """

    name = "masked language modelling"
    metric = "bits"
    better = "lower"
    model_class = LrpeForMaskedLM

    def __init__(self, dataset: TextDataset, rate: float = 0.15, whole_words: bool = False):
        self.dataset, self.text = dataset, dataset
        self.tokenizer = dataset.tokenizer.with_specials("pad", "mask")
        self.masking = make_masking(self.tokenizer, rate, whole_words)

    def fields(self) -> dict[str, Any]:
        return token_fields(self.tokenizer)

    def batches(self, split: str, size: int, training: bool, **options: Any) -> Batches:
        windows = replace(self.text.windows(split), whole=training)
        specials = self.tokenizer.specials
        start = specials.get("bos", specials["eos"])
        return Batches(
            MaskedWindows(windows, self.masking, start, fixed=not training), size, self.collate, training, **options
        )

    def collate(self, samples: list[Sample]) -> Batch:
        marked = [sample | {"attention_mask": np.ones_like(sample["input_ids"])} for sample in samples]
        return pad_tokens(marked, list(marked[0]), self.tokenizer.specials["pad"])

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return total_loss(model, batch)

    def observe(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        return observe_tokens(model, batch)

    def metrics(self, observed: Mapping[str, Tensor]) -> dict[str, float]:
        return token_metrics(observed)
