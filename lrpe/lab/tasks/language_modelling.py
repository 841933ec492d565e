"""Language modelling, measured by perplexity, and masked language modelling, measured in bits."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lrpe.lab.data.batches import Batches
from lrpe.lab.data.dataset import Sample
from lrpe.lab.data.text.masking import MaskedWindows, make_masking
from lrpe.lab.data.text.text_dataset import UNSCORED, TextDataset
from lrpe.lab.data.text.tokenizer import Tokenizer
from lrpe.lab.tasks.task import Batch, Loss, Task
from lrpe.models.language_models import LrpeForCausalLM, LrpeForMaskedLM
from lrpe.schema import Count

_PADDED = {"labels": UNSCORED, "attention_mask": 0}  # others: ids get the padding token


PER_TOKEN = ("input_ids", "labels", "sequences", "attention_mask")  # labels are shifted already


def token_fields(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the LrpeConfig fields that a tokeniser decides."""
    roles = {f"{role}_token_id": tokenizer.specials.get(role) for role in ("bos", "eos", "pad")}
    return {"vocab_size": len(tokenizer)} | roles


def pad_tokens(samples: list[Sample], names: list[str], padding: int) -> Batch:
    """Return token ids, labels and masks as (batch, longest), padded on the right."""
    longest = max(len(sample["input_ids"]) for sample in samples)

    def fill(name: str, row: np.ndarray) -> np.ndarray:
        missing = (0, longest - len(row))
        if missing[1] == 0:
            return row
        if name == "sequences":
            return np.pad(row, missing, mode="edge")
        return np.pad(row, missing, constant_values=_PADDED.get(name, padding))

    rows = {name: np.stack([fill(name, sample[name]) for sample in samples]) for name in names}
    return {name: torch.from_numpy(values.astype(np.int64)) for name, values in rows.items()}


def _token_losses(model: nn.Module, batch: Batch, **options: Any) -> Tensor:
    """Return the loss per token in nats, 0 where not scored; (batch, n). The options are passed to the model."""
    optional = {"attention_mask": batch.get("attention_mask"), "seq_idx": batch.get("sequences")}
    inputs = {name: value for name, value in optional.items() if value is not None}
    return model(input_ids=batch["input_ids"], targets=batch["labels"], **inputs, **options).loss


def total_loss(model: nn.Module, batch: Batch, **options: Any) -> Loss:
    return Loss(_token_losses(model, batch, **options).sum(), (batch["labels"] != UNSCORED).sum())


def _sums_per_row(nats: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the nats and the number of scored tokens per row."""
    return {"nats": nats.double().sum(-1), "tokens": (labels != UNSCORED).sum(-1)}


def token_metrics(observed: Mapping[str, Tensor]) -> dict[str, float]:
    """Return nats, bits and perplexity per token, over all tokens with equal weight."""
    nats = float(observed["nats"].sum() / observed["tokens"].sum())
    return {"nats": nats, "bits": nats / math.log(2), "perplexity": safe_exp(nats)}


_MOST_OCTAVES = 32  # a window has fewer tokens than 2 to the power of this


def _sum_by_octave(values: Tensor, first: int) -> Tensor:
    """Sum (batch, n) over the first ``first`` positions, the next ``first``, then twice as many; (batch, octaves).

    There are always ``_MOST_OCTAVES`` sums, because the windows of a last batch may be shorter; those beyond n are 0.
    """
    position = torch.arange(values.shape[-1], device=values.device)
    octave = torch.frexp((position // first).double()).exponent  # 0 of 0, 1 of 1, 2 of 2 and 3, 3 of 4 ... 7
    sums = torch.zeros(len(values), _MOST_OCTAVES, dtype=torch.float64, device=values.device)
    return sums.index_add_(1, octave, values.double())


def octave_name(number: int) -> str:
    """Return the name of the perplexity of an octave of positions; number 0 is the first."""
    return f"perplexity, octave {number}"


def safe_exp(nats: float) -> float:
    """Return e^nats, or infinity where a float overflows."""
    return math.exp(nats) if nats < 700 else math.inf


class LanguageModelling(Task):
    """Exact perplexity: each token of a split is scored once, with equal weight.

    In evaluation each window scores its last ``stride`` tokens; the others are context. None scores whole windows,
    without context from the previous one. Perplexity is per token (per word with a vocabulary of words);
    ``word_perplexity`` and ``bits_per_byte`` are comparable across tokenisers. With ``octaves``, perplexity is also
    measured by position in the window: of the first ``octaves`` tokens, of as many again, of twice as many, and so on.
    """

    name = "language modelling"
    metric = "perplexity"
    better = "lower"
    model_class = LrpeForCausalLM

    def __init__(self, dataset: TextDataset, stride: Count | None = None, octaves: Count | None = None):
        self.dataset, self.text, self.stride, self.octaves = dataset, dataset, stride, octaves

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

    def names_per_token(self) -> tuple[str, ...]:
        return PER_TOKEN

    def observe(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        nats, labels = _token_losses(model, batch, use_cache=False), batch["labels"]
        observed = _sums_per_row(nats, labels)
        if self.octaves is not None:
            per_token = {"octave nats": nats, "octave tokens": labels != UNSCORED}
            observed |= {name: _sum_by_octave(each, self.octaves) for name, each in per_token.items()}
        return observed | {"words": batch["words"], "bytes": batch["bytes"]}

    def metrics(self, observed: Mapping[str, Tensor]) -> dict[str, float]:
        nats, words, size = (float(observed[name].sum()) for name in ("nats", "words", "bytes"))
        return (
            token_metrics(observed)
            | self._octave_metrics(observed)
            | {
                "word_perplexity": safe_exp(nats / words) if words else math.nan,
                "bits_per_byte": nats / size / math.log(2) if size else math.nan,
            }
        )

    def _octave_metrics(self, observed: Mapping[str, Tensor]) -> dict[str, float]:
        if self.octaves is None:
            return {}
        nats, tokens = (observed[f"octave {name}"].sum(0).tolist() for name in ("nats", "tokens"))
        return {
            octave_name(k): safe_exp(total / count)
            for k, (total, count) in enumerate(zip(nats, tokens, strict=True))
            if count
        }


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

    def names_per_token(self) -> tuple[str, ...]:
        return PER_TOKEN

    def observe(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        return _sums_per_row(_token_losses(model, batch), batch["labels"])

    def metrics(self, observed: Mapping[str, Tensor]) -> dict[str, float]:
        return token_metrics(observed)
