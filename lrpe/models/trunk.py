"""The trunk that all models share: embeddings, blocks and a final norm."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.utils.generic import can_return_tuple

from lrpe.attention.convolution import ShortConvolution
from lrpe.attention.inputs import Given
from lrpe.attention.softmax import SoftmaxAttention
from lrpe.attention.tokens import Tokens, positions_of, read_tokens
from lrpe.errors import LrpeError, require
from lrpe.models.block import NORMS, Block, State, defined_tensors
from lrpe.models.cache import LrpeCache, Read
from lrpe.models.configuration import LrpeConfig
from lrpe.models.inputs import (
    PatchEmbedding,
    TokenPositions,
    check_kwargs,
    check_trunk,
    embed_tokens,
    of_new_tokens,
    separate,
)
from lrpe.models.weights import KeepsPrecision, check_found, follow, naming_damage, stored_config
from lrpe.parallel import active_group


class LrpePreTrainedModel(KeepsPrecision, PreTrainedModel):
    """Base class of our models: their flags for transformers, loading, and the initialisation of weights."""

    config_class = LrpeConfig
    config: LrpeConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["Block"]
    _skip_keys_device_placement = ["past_key_values"]
    _is_stateful = False  # transformers' word for a state that cannot be cropped; an LrpeCache can
    _supports_sdpa = True  # softmax attention is torch's own
    _can_compile_fullgraph = False
    _supports_context_parallel = False

    causal_by_default = False

    def __init__(self, config: LrpeConfig, *args: Any, **kwargs: Any):
        if getattr(config, "model_type", None) != "lrpe":
            raise LrpeError(f"config of {type(self).__name__} must be an LrpeConfig; got {type(config).__name__}.")
        if not isinstance(config, LrpeConfig):  # the LrpeConfig of an exported model's own copy of our code
            config = LrpeConfig.from_dict(config.to_dict())
        config.check()
        causal = self.causal_by_default and config.image_size is None
        super().__init__(config.settled(causal), *args, **kwargs)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any):  # type: ignore[override]
        """Load from safetensors only; configuration changes passed as keyword arguments take effect.

        ``from_pretrained(folder, decay=None)`` has no decay, and ``encoding={"name": "rope", "base": 500.0}`` sets
        those angles. Tensors that the saved and the changed model both learn are loaded from the file.
        """
        where, wants_info = pretrained_model_name_or_path, kwargs.pop("output_loading_info", False)
        require(
            kwargs.pop("use_safetensors", True),
            "use_safetensors must be True, because pickles can run code; got use_safetensors=False. Leave it out.",
        )
        with naming_damage(where):
            model, info = super().from_pretrained(  # type: ignore[misc]
                where, *args, use_safetensors=True, output_loading_info=True, **kwargs
            )
        stored = stored_config(where, kwargs)
        check_found(model, info, where, model.config if stored is None else stored)
        if stored is not None:
            follow(model, model.config, stored)
        return (model, info) if wants_info else model

    def _init_weights(self, module: nn.Module) -> None:
        std = self.config.initializer_range
        if isinstance(module, nn.Linear):
            init.normal_(module.weight, std=std)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=std)
        elif isinstance(module, PatchEmbedding) and module.class_token is not None:
            init.normal_(module.class_token, std=std)
        elif isinstance(module, ShortConvolution):
            init.copy_(module.weight, module.identity())
        elif isinstance(module, (nn.LayerNorm, nn.RMSNorm, nn.BatchNorm1d)):
            _reset_norm(module)

    def initialize_weights(self) -> None:
        """Initialise weights that no file provided, then the tensors that the configuration's seed defines."""
        super().initialize_weights()
        for block in (module for module in self.modules() if isinstance(module, Block)):
            own = block.attention.state_dict(keep_vars=True)
            for name, value in defined_tensors(self.config, block.layer).items():
                init.copy_(own[name], value)


def _reset_norm(norm: nn.Module) -> None:
    values = norm.state_dict(keep_vars=True)
    for name, value in values.items():
        (init.ones_ if name in ("weight", "running_var") else init.zeros_)(value)


class LrpeModel(LrpePreTrainedModel):
    """Map tokens, or the patches of an image, to hidden states."""

    causal_by_default = True

    def __init__(self, config: LrpeConfig):
        super().__init__(config)
        config = self.config
        image, width = config.image_size is not None, config.hidden_size
        self.embed_tokens = None if image else nn.Embedding(config.vocab_size, width, config.pad_token_id)
        self.embed_patches = PatchEmbedding(config) if image else None
        added = config.absolute_positions is not None and not image
        self.absolute = TokenPositions(config) if added else None
        norm = NORMS[config.norm]
        self.embedding_norm = norm(width, eps=config.norm_eps) if config.embedding_norm else None
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        blocks = [Block(config, layer) for layer in range(config.num_hidden_layers)]
        self.layers = cast(Sequence[Block], nn.ModuleList(blocks))
        self.norm = norm(width, eps=config.norm_eps) if config.norm_position == "pre" else None
        self.axes = config.position_axes
        self.gradient_checkpointing = False
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: LrpeCache | None = None,
        inputs_embeds: Tensor | None = None,
        pixel_values: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        seq_idx: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Return hidden states (batch, n, hidden_size) of ``input_ids``, ``inputs_embeds`` or ``pixel_values``.

        ``attention_mask`` (batch, n) is 1 for real tokens; with a cache it may also cover the cached tokens. Packed
        sequences are separated by ``seq_idx`` (a number per token), by ``cu_seq_lens_q`` (boundaries in one row), or
        by ``position_ids`` that restart.
        """
        check_kwargs(kwargs)
        check_trunk(self.config, self.training, pixel_values, past_key_values, use_cache)
        x, places = self.embed(input_ids, inputs_embeds, pixel_values, position_ids)
        past = past_key_values if isinstance(past_key_values, LrpeCache) else None
        mask = of_new_tokens(attention_mask, x.shape[1], 0 if past is None else past.get_seq_length())
        if cu_seq_lens_q is not None:
            seq_idx = None  # a collator may pass both; they are equivalent
        elif seq_idx is None and past is None and pixel_values is None:
            seq_idx = separate(position_ids, mask, x.shape[0])
        packed = seq_idx is not None or cu_seq_lens_q is not None
        if input_ids is not None and past is None and not packed:
            self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
        stateless = packed or active_group() is not None
        cache = self.choose_cache(past_key_values, False if stateless and use_cache is None else use_cache)
        states = self.start(cache, x.shape[0])
        counts = any(block.attention.counts for block in self.layers)
        causal = bool(self.config.causal) and pixel_values is None  # patches have no order
        given = Given(places, mask, seq_idx, cu_seq_lens_q)
        tokens = read_tokens(x, given, self.axes, state=states[0], counts=counts, causal=causal)
        x = x if self.absolute is None else self.absolute(x, positions_of(tokens, x))
        x = x if self.embedding_norm is None else self.embedding_norm(x, tokens.mask)
        x, seen = self.run(self.dropout(x), tokens, states, cache, None if packed else given)
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        hidden = (*seen, x) if wanted else None
        return BaseModelOutputWithPast(last_hidden_state=x, past_key_values=cache, hidden_states=hidden)  # type: ignore

    def run(
        self,
        x: Tensor,
        tokens: Tokens,
        states: list[State | None],
        cache: LrpeCache | None,
        given: Given | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Run the blocks and the final norm; return the output and the input of each block.

        A cache can take back tokens that are described by ``given``; packed ones are not.
        """
        seen = []
        for index, block in enumerate(self.layers):
            seen.append(x)
            x, after = block(x, tokens, states[index], cache is not None)
            if cache is not None:
                read = None if given is None else Read(states[index], seen[-1], given.positions, given.mask)
                cache.of_layers[index].keep(after, x.shape[1], read)
        return (x if self.norm is None else self.norm(x, tokens.mask)), seen

    def embed(self, ids: Tensor | None, embedded: Tensor | None, pixels: Tensor | None, positions: Tensor | None):
        """Return the embeddings of the input, and their positions if they are known."""
        given = [x for x in (ids, embedded, pixels) if x is not None]
        require(
            len(given) == 1,
            f"Pass one of input_ids, inputs_embeds and pixel_values; got {len(given) or 'none'} of them.",
        )
        if embedded is not None:
            width = self.config.hidden_size
            fits = embedded.ndim == 3 and embedded.shape[-1] == width
            require(fits, lambda: f"inputs_embeds must be (batch, n, {width}); got {tuple(embedded.shape)}.")
            return embedded, positions
        if pixels is not None:
            if self.embed_patches is None:
                raise LrpeError("This is a text model: pass input_ids, not pixel_values. Set image_size for images.")
            return self.embed_patches(pixels)
        if self.embed_tokens is None or ids is None:
            raise LrpeError("This is an image model: pass pixel_values, not input_ids.")
        require(ids.ndim == 2, lambda: f"input_ids must be (batch, n); got {tuple(ids.shape)}.")
        return embed_tokens(self.embed_tokens, ids), positions

    def choose_cache(self, given: LrpeCache | None, use_cache: bool | None) -> LrpeCache | None:
        """Return the given cache, a new one if it is wanted, or None."""
        if given is not None and not isinstance(given, LrpeCache):
            raise LrpeError(f"past_key_values must be an LrpeCache from this model; got {type(given).__name__}.")
        if given is not None and not self.config.causal:
            raise LrpeError("past_key_values needs a causal model; this one is bidirectional. Pass none.")
        checkpointing = self.gradient_checkpointing and self.training
        require(
            given is None or not checkpointing,
            "Gradient checkpointing runs blocks twice, which would update a cache twice. Pass no past_key_values, or "
            "call eval().",
        )
        wanted = (self.config.use_cache and not self.training) if use_cache is None else use_cache
        if not self.config.causal or checkpointing or (given is None and not wanted):
            return None
        cache = LrpeCache(len(self.layers)) if given is None else given
        require(
            len(cache.layers) == len(self.layers),
            f"past_key_values must have {len(self.layers)} layers; got {len(cache.layers)}.",
        )
        return cache

    def start(self, cache: LrpeCache | None, batch: int) -> list[State | None]:
        """Return the states of a cache, or None per layer; softmax layers of an empty cache reserve its ``room``.

        What a crop left of a call is read again here.
        """
        if cache is None:
            return [None] * len(self.layers)
        for layer, block in zip(cache.of_layers, self.layers, strict=True):
            # Writing in place would break the gradient. Without it, each state kept for a rollback would be a copy.
            reserves = (cache.room or cache.rollback) and not torch.is_grad_enabled()
            if layer.state is None and reserves and isinstance(block.attention, SoftmaxAttention):
                layer.state = block.attention.reserve(batch, cache.room)
            layer.read_again(block)
        return cache.states
