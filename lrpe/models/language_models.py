"""Language models: one predicts the next token, one fills in masked tokens."""

from typing import Any

from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.activations import ACT2FN
from transformers.generation.configuration_utils import GenerationMode
from transformers.modeling_outputs import CausalLMOutputWithPast, MaskedLMOutput
from transformers.utils.generic import can_return_tuple

from lrpe.attention.layer import Projection
from lrpe.errors import LrpeError, require
from lrpe.models.block import NORMS, token_losses
from lrpe.models.cache import LrpeCache
from lrpe.models.configuration import LrpeConfig
from lrpe.models.inputs import check_labels
from lrpe.models.trunk import LrpeModel, LrpePreTrainedModel
from lrpe.parallel import refuse


class LrpeForCausalLM(LrpePreTrainedModel, GenerationMixin):
    """A causal trunk and an output layer; ``generate`` decodes from a cache of constant size."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}
    causal_by_default = True

    def __init__(self, config: LrpeConfig):
        super().__init__(config)
        config = self.config
        require(bool(self.config.causal), "causal must be True or None in LrpeForCausalLM; got causal=False.")
        self.model = LrpeModel(config)
        self.lm_head = Projection(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: LrpeCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        targets: Tensor | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Return logits (batch, n, vocab_size), of the last ``logits_to_keep`` tokens if that is not 0.

        ``labels`` are the input tokens, -100 where nothing is to be predicted; they are shifted here for the loss.
        ``targets`` are the tokens that follow them, shifted already: then ``loss`` is the cross-entropy per token
        (batch, n), and no logits are returned. To train on a text whose logits do not fit into the memory, enable
        gradient checkpointing as well.
        """
        check_labels(labels, targets, kwargs)
        require(
            targets is None or (isinstance(logits_to_keep, int) and logits_to_keep == 0),
            "With targets there are no logits, so logits_to_keep must be 0; got "
            f"logits_to_keep={logits_to_keep}. Leave one of the two out.",
        )
        given = (input_ids, attention_mask, position_ids, past_key_values, inputs_embeds)
        output = self.model(*given, use_cache=use_cache, return_dict=True, **kwargs)
        if targets is not None:
            recompute = self.model.gradient_checkpointing and self.training
            size = self.config.vocab_size
            losses = token_losses(self.lm_head, output.last_hidden_state, targets, vocabulary=size, recompute=recompute)
            return CausalLMOutputWithPast(losses, None, output.past_key_values, output.hidden_states)  # type: ignore
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep  # -0: all
        logits = self.lm_head(output.last_hidden_state[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(loss, logits, output.past_key_values, output.hidden_states)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def _prepare_cache_for_generation(  # type: ignore[override]
        self, generation_config, model_kwargs, generation_mode, batch_size, max_cache_length, *_: Any
    ) -> None:
        """Give generate() an empty LrpeCache with room for all it may generate, unless the caller passed one."""
        refuse("Generation, which adds tokens to one part,", "Call generate() outside of it.")
        require(
            generation_config.cache_implementation is None,
            "cache_implementation must be None: the cache of this model is an LrpeCache; got "
            f"cache_implementation={generation_config.cache_implementation!r}. Leave it out.",
        )
        if model_kwargs.get("past_key_values") is None and generation_config.use_cache:
            model_kwargs["past_key_values"] = LrpeCache(self.config.num_hidden_layers, room=max_cache_length)
        cache = model_kwargs.get("past_key_values")
        if isinstance(cache, LrpeCache):
            cache.allow_rollback(_rollback_of(generation_config, generation_mode))

    def _prepare_position_ids_for_generation(self, *_: Any) -> None:  # type: ignore[override]
        """Pass no positions: the trunk derives them from the mask and the cache."""

    def _validate_generation_mode(self, generation_mode, generation_config, generation_mode_kwargs) -> None:
        _refuse_contrastive_search(generation_mode)
        super()._validate_generation_mode(generation_mode, generation_config, generation_mode_kwargs)  # type: ignore

    def _get_deprecated_gen_repo(self, generation_mode, *arguments: Any) -> str | None:  # type: ignore[override]
        _refuse_contrastive_search(generation_mode)  # before code from a hub is asked for
        return super()._get_deprecated_gen_repo(generation_mode, *arguments)  # type: ignore


def _refuse_contrastive_search(mode: GenerationMode) -> None:
    if mode == GenerationMode.CONTRASTIVE_SEARCH:
        raise LrpeError(
            f"{mode.value} compares the keys of all tokens, which the state of a linear attention does not keep. Use "
            "greedy search, sampling, beam search or assisted generation."
        )


def _rollback_of(config: Any, mode: GenerationMode) -> int:
    """Return how many tokens generate() will remove from the cache, beside those of the latest call."""
    if getattr(config, "is_assistant", False):  # it reads its candidates one by one, and may have to forget all
        return (config.max_new_tokens or config.max_length) + 1
    return int(mode == GenerationMode.ASSISTED_GENERATION)  # candidates are read in one call


class LrpeForMaskedLM(LrpePreTrainedModel):
    """A bidirectional trunk and RoBERTa's head: a dense layer, a norm, and the embedding with a bias."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: LrpeConfig):
        super().__init__(config)
        config = self.config
        require(not self.config.causal, "causal must be False or None in LrpeForMaskedLM; got causal=True.")
        self.model = LrpeModel(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act = ACT2FN[config.hidden_act]
        # not "norm": that is the name of the trunk's last norm in a file without prefixes
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
        targets: Tensor | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Return logits (batch, n, vocab_size); ``labels`` are the true tokens, -100 where nothing was masked.

        With the same as ``targets``, ``loss`` is the cross-entropy per token (batch, n), and no logits are returned.
        """
        check_labels(labels, targets, kwargs)
        given = (input_ids, attention_mask, position_ids)
        output = self.model(*given, inputs_embeds=inputs_embeds, return_dict=True, **kwargs)
        mask = None if attention_mask is None else attention_mask != 0
        x = self.dense_norm(self.act(self.dense(output.last_hidden_state)), mask)
        if targets is not None:
            recompute = self.model.gradient_checkpointing and self.training
            size = self.config.vocab_size
            losses = token_losses(self.lm_head, x, targets, vocabulary=size, recompute=recompute)
            return MaskedLMOutput(losses, None, output.hidden_states)  # type: ignore
        logits = self.lm_head(x)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return MaskedLMOutput(loss, logits, output.hidden_states)
