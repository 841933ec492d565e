"""The language model that fills in masked tokens."""

from typing import Any

from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_outputs import MaskedLMOutput
from transformers.utils.generic import can_return_tuple

from lrpe.errors import require
from lrpe.models.configuration import LrpeConfig
from lrpe.models.norm import NORMS
from lrpe.models.trunk import LrpeModel, LrpePreTrainedModel


class LrpeForMaskedLM(LrpePreTrainedModel):
    """A bidirectional trunk and RoBERTa's head: a dense layer, a norm, and the embedding with a bias."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: LrpeConfig):
        super().__init__(config)
        config = self.config
        require(not self.config.causal, "A masked token is filled in from both sides; got causal=True.")
        self.model = LrpeModel(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act = ACT2FN[config.hidden_act]
        # not "norm": without its prefix the trunk's last norm is called that
        self.dense_norm = NORMS[config.norm](config.hidden_size, eps=config.norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Logits (batch, n, vocab_size). ``labels`` are the true tokens, and -100 where nothing was masked."""
        given = (input_ids, attention_mask, position_ids)
        output = self.model(*given, inputs_embeds=inputs_embeds, return_dict=True, **kwargs)
        mask = None if attention_mask is None else attention_mask != 0
        logits = self.lm_head(self.dense_norm(self.act(self.dense(output.last_hidden_state)), mask))
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return MaskedLMOutput(loss, logits, output.hidden_states)
