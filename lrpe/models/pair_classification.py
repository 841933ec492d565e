"""One label for two documents that are encoded apart: Retrieval of Long-Range Arena."""

from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils.generic import can_return_tuple

from lrpe.errors import LrpeError
from lrpe.models.classification import LrpeClassificationModel
from lrpe.models.configuration import LrpeConfig
from lrpe.models.pooling import pool


class LrpeForPairClassification(LrpeClassificationModel):
    """One trunk reads both documents, and the classifier sees [a, b, a·b, a - b] of their pooled vectors."""

    vectors = 4

    def __init__(self, config: LrpeConfig):
        super().__init__(config)
        self.loss_type = "ForSequenceClassification"

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        pair_input_ids: Tensor | None = None,
        pair_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Logits (batch, num_labels) of the texts ``input_ids`` (batch, n) and ``pair_input_ids`` (batch, m)."""
        if input_ids is None or pair_input_ids is None or input_ids.shape[0] != pair_input_ids.shape[0]:
            raise LrpeError("A pair is input_ids (batch, n) and pair_input_ids (batch, m), of one batch.")
        a, b = self.read(input_ids, attention_mask, **kwargs), self.read(pair_input_ids, pair_attention_mask, **kwargs)
        logits = self.classifier(torch.cat([a, b, a * b, a - b], -1))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config, **kwargs)
        return SequenceClassifierOutput(loss, logits)

    def read(self, ids: Tensor, mask: Tensor | None, **kwargs: Any) -> Tensor:
        hidden = self.model(ids, mask, return_dict=True, **{"use_cache": False} | kwargs).last_hidden_state
        return pool(hidden, mask, self.config.pooling)
