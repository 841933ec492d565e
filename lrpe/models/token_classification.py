"""One label for each token of a text."""

from typing import Any

from torch import Tensor
from transformers.modeling_outputs import TokenClassifierOutput
from transformers.utils.generic import can_return_tuple

from lrpe.models.classification import LrpeClassificationModel


class LrpeForTokenClassification(LrpeClassificationModel):
    """A trunk and a classifier of every token."""

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Logits (batch, n, num_labels); ``labels`` are (batch, n) integers, and -100 for tokens without one."""
        options = {"use_cache": False, "inputs_embeds": inputs_embeds} | kwargs
        output = self.model(input_ids, attention_mask, position_ids, return_dict=True, **options)
        logits = self.classifier(output.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config, **kwargs)
        return TokenClassifierOutput(loss, logits, output.hidden_states)
