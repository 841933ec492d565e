"""Language modelling: predict each token from the tokens before it; measured by perplexity."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lrpe.lab.data.batches import Batches
from lrpe.lab.data.dataset import Sample
from lrpe.lab.data.text.text_dataset import TextDataset
from lrpe.lab.tasks.task import Batch, Loss, Task
from lrpe.lab.tasks.token_losses import observe_tokens, pad_tokens, safe_exp, token_fields, token_metrics, total_loss
from lrpe.models.language_models import LrpeForCausalLM
from lrpe.schema import Count


class LanguageModelling(Task):
    """Exact perplexity: each token of a split is scored once, with equal weight.

    In evaluation each window scores its last ``stride`` tokens; the others are context. None scores whole windows,
    without context from the previous one. Perplexity is per token (per word with a vocabulary of words);
    ``word_perplexity`` and ``bits_per_byte`` are comparable across tokenisers.
    """

    name = "language modelling"
    metric = "perplexity"
    better = "lower"
    model_class = LrpeForCausalLM

    def __init__(self, dataset: TextDataset, stride: Count | None = None):
        self.dataset, self.text, self.stride = dataset, dataset, stride

    def fields(self) -> dict[str, Any]:
        return token_fields(self.text.tokenizer)

    def batches(self, split: str, size: int, training: bool, **options: Any) -> Batches:
        """Return whole windows in training; in evaluation the whole split, by ``stride``."""
        windows = self.text.windows(split)
        chosen = replace(windows, whole=True) if training else replace(windows, stride=self.stride)
        return Batches(chosen, size, self.collate, training, **options)

    def collate(self, samples: list[Sample]) -> Batch:
        names = ["input_ids", "labels", *(["sequences"] if "sequences" in samples[0] else [])]
        specials = self.text.tokenizer.specials
        counts = {
            name: torch.tensor([sample[name] for sample in samples], dtype=torch.float64) for name in ("words", "bytes")
        }
        return pad_tokens(samples, names, specials.get("pad", specials["eos"])) | counts

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        return total_loss(model, batch, use_cache=False)

    def observe(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        return observe_tokens(model, batch, use_cache=False) | {"words": batch["words"], "bytes": batch["bytes"]}

    def metrics(self, observed: Mapping[str, Tensor]) -> dict[str, float]:
        nats, words, size = (float(observed[name].sum()) for name in ("nats", "words", "bytes"))
        return token_metrics(observed) | {
            "word_perplexity": safe_exp(nats / words) if words else math.nan,
            "bits_per_byte": nats / size / math.log(2) if size else math.nan,
        }
