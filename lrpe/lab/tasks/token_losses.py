"""Shared by both kinds of language modelling: padded batches of token ids, and the loss per row."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrpe.lab.data.dataset import Sample
from lrpe.lab.data.text.tokenizer import Tokenizer
from lrpe.lab.data.text.windows import UNSCORED
from lrpe.lab.tasks.task import Batch, Loss

_PADDED = {"labels": UNSCORED, "attention_mask": 0}  # others: ids get the padding token


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
    logits = model(input_ids=batch["input_ids"], **inputs, **options).logits
    losses = F.cross_entropy(
        logits.flatten(0, 1).float(), batch["labels"].flatten(), ignore_index=UNSCORED, reduction="none"
    )
    return losses.view_as(batch["labels"])


def total_loss(model: nn.Module, batch: Batch, **options: Any) -> Loss:
    return Loss(_token_losses(model, batch, **options).sum(), (batch["labels"] != UNSCORED).sum())


def observe_tokens(model: nn.Module, batch: Batch, **options: Any) -> dict[str, Tensor]:
    """Return the nats and the number of scored tokens per row."""
    nats = _token_losses(model, batch, **options).double().sum(-1)
    return {"nats": nats, "tokens": (batch["labels"] != UNSCORED).sum(-1)}


def token_metrics(observed: Mapping[str, Tensor]) -> dict[str, float]:
    """Return nats, bits and perplexity per token, over all tokens with equal weight."""
    nats = float(observed["nats"].sum() / observed["tokens"].sum())
    return {"nats": nats, "bits": nats / math.log(2), "perplexity": safe_exp(nats)}


def safe_exp(nats: float) -> float:
    """Return e^nats, or infinity where a float overflows."""
    return math.exp(nats) if nats < 700 else math.inf
