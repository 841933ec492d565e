"""One label, or one number, for a text: GLUE, and the single texts of Long-Range Arena."""

from typing import Any

from torch import Tensor
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils.generic import can_return_tuple

from lrpe.models.classification import LrpeClassificationModel
from lrpe.models.pooling import pool


class LrpeForSequenceClassification(LrpeClassificationModel):
    """A trunk, pooling, and a classifier; a regression if there is one label."""

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Logits (batch, num_labels); ``labels`` are (batch,) integers, or numbers for a regression."""
        options = {"use_cache": False, "inputs_embeds": inputs_embeds} | kwargs
        output = self.model(input_ids, attention_mask, position_ids, return_dict=True, **options)
        logits = self.classifier(pool(output.last_hidden_state, attention_mask, self.config.pooling))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config, **kwargs)
        return SequenceClassifierOutput(loss, logits, output.hidden_states)
