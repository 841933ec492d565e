"""One block of the trunk: attention and a feed-forward layer, each with a norm and a residual connection.

Functions of one token at a time, such as the feed-forward layer and the loss, are computed in chunks of tokens, so that
their memory does not grow with the text.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from lrpe.attention.decay import choose_decay
from lrpe.attention.feature_map import choose_feature_map
from lrpe.attention.layer import Projection
from lrpe.attention.linear import LinearAttention
from lrpe.attention.softmax import SoftmaxAttention
from lrpe.attention.state import DecodingState, KeyValues
from lrpe.attention.steps import choose_steps
from lrpe.attention.tokens import Tokens
from lrpe.errors import LrpeError, require
from lrpe.models.configuration import LrpeConfig
from lrpe.precision import compute_dtype

State = DecodingState | KeyValues


class Block(GradientCheckpointingLayer):
    """x + attention(norm(x)), then x + feed_forward(norm(x)); with post-norm, norm(x + attention(x)) and so on."""

    def __init__(self, config: LrpeConfig, layer: int):
        super().__init__()
        norm = NORMS[config.norm]
        self.layer, self.pre = layer, config.norm_position == "pre"
        self.attention = build_attention(config, layer)
        self.attention_norm = norm(config.hidden_size, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = norm(config.hidden_size, eps=config.norm_eps)
        self.drop_path = DropPath(config.drop_path_rate)

    def forward(
        self, x: Tensor, tokens: Tokens, state: State | None = None, wants_state: bool = True
    ) -> tuple[Tensor, State | None]:
        """(batch, n, width) -> the same, and the state after these tokens if causal and ``wants_state``."""
        y = self.attention_norm(x, tokens.mask) if self.pre else x
        y, after = self.attention.attend(y, y, tokens, tokens, state, wants_state)  # type: ignore[arg-type]  # state is of this attention's type
        x = x + self.drop_path(y)
        x = x if self.pre else self.attention_norm(x, tokens.mask)
        x = x + self.drop_path(self.feed(x, tokens.mask))
        return x if self.pre else self.feed_forward_norm(x, tokens.mask), after

    def feed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the feed-forward branch; with gradient checkpointing its inner width is kept for no token.

        That is the greatest tensor of a block. Batch norm, whose statistics are over all tokens, comes before.
        """
        norm = self.feed_forward_norm if self.pre else nn.Identity()
        if isinstance(norm, BatchNorm):
            x, norm = norm(x, mask), nn.Identity()
        if not (self.gradient_checkpointing and self.training):
            return self.feed_forward(norm(x))
        return by_chunks(lambda x: self.feed_forward(norm(x)), x, width=self.feed_forward.inner, recompute=True)

    def read(self, x: Tensor, state: State | None, positions: Tensor | None, mask: Tensor | None) -> State:
        """Return the state after the tokens x (batch, n, width) alone, without their output."""
        y = self.attention_norm(x, mask) if self.pre else x
        return self.attention.prefill(y, state, positions, mask)[1]  # type: ignore[arg-type]  # as above


def build_attention(config: LrpeConfig, layer: int) -> LinearAttention | SoftmaxAttention:
    shared = {
        "width": config.hidden_size,
        "heads": config.num_attention_heads,
        "encoding": config.layer_encoding(layer),
        "key_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "summation": "causal" if config.causal else "bidirectional",
        "decay": config.layer_decay(layer),
        "bias": config.attention_bias,
        "qkv_bias": config.qkv_bias,
        "output_gate": config.output_gate,
        "convolution": config.convolution,
        "convolution_activation": config.convolution_activation,
        "dropout": config.hidden_dropout_prob,
    }
    if config.layer_attention(layer) == "softmax":
        return SoftmaxAttention(**shared, attention_dropout=config.attention_probs_dropout_prob)
    return LinearAttention(**shared, feature_map=config.feature_map, normalizer=config.normalizer)


def defined_tensors(config: LrpeConfig, layer: int) -> dict[str, Tensor]:
    """Return the tensors that the configuration of a layer defines: angles, bases, permutations, decays, steps, ω."""
    # On the CPU, so that a seed gives the same values on every device, and under torch.device("meta") too.
    with torch.device("cpu"):
        encoding, heads = config.layer_encoding(layer).build(), config.num_key_value_heads
        parts: dict[str, object] = {"encoding": encoding}
        if config.layer_attention(layer) == "linear":
            parts["phi"] = choose_feature_map(config.feature_map, config.head_dim)
        parts["decay"] = choose_decay(config.layer_decay(layer), encoding, heads, config.hidden_size)
        parts["steps"] = choose_steps(encoding, config.hidden_size, heads)
        return {
            f"{part}.{name}": tensor
            for part, module in parts.items()
            if isinstance(module, nn.Module)
            for name, tensor in module.state_dict(keep_vars=True).items()
        }


class DropPath(nn.Module):
    """Stochastic depth: in training, drop a branch per sample with probability ``rate``, else divide it by 1 - rate."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        keep = 1 - self.rate
        return x * x.new_empty(x.shape[0], 1, 1).bernoulli_(keep).div_(keep)

    def extra_repr(self) -> str:
        return f"{self.rate}"


class FeedForward(nn.Module):
    """down(act(up(x))), or down(act(gate(x)) · up(x)) if it is gated."""

    def __init__(self, config: LrpeConfig):
        super().__init__()
        width, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.inner = inner
        self.gate_proj = Projection(width, inner, bias=bias) if config.gated else None
        self.up_proj = Projection(width, inner, bias=bias)
        self.down_proj = Projection(inner, width, bias=bias)
        self.act = ACT2FN[config.hidden_act]
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor) -> Tensor:
        up = self.up_proj(x)
        inner = self.act(up) if self.gate_proj is None else self.act(self.gate_proj(x)) * up
        return self.dropout(self.down_proj(inner))


class LayerNorm(nn.LayerNorm):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return super().forward(x)


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over the real tokens of (batch, n, width): the statistics exclude padding.

    Training uses the batch's mean and variance and updates the running averages that evaluation uses. With gradient
    checkpointing, which computes the forward pass twice, each batch updates them twice.
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        if mask is None or not self.training:
            return super().forward(x.flatten(0, 1)).view_as(x)
        precise = x.to(compute_dtype(x.dtype))
        real = mask[..., None].to(precise.dtype)
        count = real.sum().clamp(min=1)
        mean = (precise * real).sum((0, 1)) / count
        variance = ((precise - mean).square() * real).sum((0, 1)) / count
        self.track(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        return ((precise - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias).to(x.dtype)

    def track(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running averages of the mean and the unbiased variance, as nn.BatchNorm1d does.

        Autograd does not count the writes, as it does not count torch's own: a batch without padding has kept the
        averages for its backward pass, which does not read them.
        """
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.running_mean.data.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.data.lerp_(variance.to(self.running_var.dtype), self.momentum)
        self.num_batches_tracked.add_(1)


Norm = LayerNorm | RMSNorm | BatchNorm
NORMS: dict[str, type[Norm]] = {"layer": LayerNorm, "rms": RMSNorm, "batch": BatchNorm}


def chunk_tokens(width: int) -> int:
    """Return how many tokens of all rows a chunk has: at most 32 MiB in float32, but enough for matrix products."""
    return min(4096, max(256, 2**23 // width))


def by_chunks(act: Callable[..., Tensor], *inputs: Tensor, width: int, recompute: bool) -> Tensor:
    """Return ``act`` of tensors (batch, n, ...), which is (batch, n, ...) too, chunk by chunk.

    Args:
        act: a function that treats every token on its own.
        inputs: its arguments.
        width: how many numbers ``act`` makes per token at its widest.
        recompute: keep nothing for the backward pass but the inputs, and call ``act`` again there. Inside torch.compile
            there are no chunks, whose number would be part of the graph, and nothing is called again.
    """
    batch, n = inputs[0].shape[:2]
    size = max(1, chunk_tokens(width) // max(1, batch))
    if n <= size or torch.compiler.is_compiling():
        return act(*inputs)

    def run(*chunk: Tensor) -> Any:
        return checkpoint(act, *chunk, use_reentrant=False) if recompute else act(*chunk)

    return torch.cat([run(*chunk) for chunk in zip(*(x.split(size, 1) for x in inputs), strict=True)], 1)


def token_losses(
    head: Callable[[Tensor], Tensor], x: Tensor, targets: Tensor, *, vocabulary: int, recompute: bool
) -> Tensor:
    """Return the cross-entropy per token in nats, (batch, n), 0 where the target is -100.

    While gradients are recorded, torch keeps the log-probabilities of all tokens unless ``recompute`` is set.

    Args:
        head: the map from hidden states to logits, which are computed for one chunk at a time.
        x: hidden states (batch, n, width).
        targets: the token to predict at each position, (batch, n).
        vocabulary: the number of logits per token.
        recompute: as for ``by_chunks``.

    Raises:
        LrpeError: the targets are not one token per hidden state.
    """
    require(
        targets.shape == x.shape[:2],
        lambda: f"targets must have shape (batch, n) = {tuple(x.shape[:2])}; got {tuple(targets.shape)}.",
    )
    require(
        not targets.is_floating_point() and not targets.is_complex(),
        lambda: f"targets must be integers; got {targets.dtype}.",
    )

    def losses(x: Tensor, targets: Tensor) -> Tensor:
        logits = head(x).flatten(0, 1).float()
        return F.cross_entropy(logits, targets.flatten(), reduction="none").view_as(targets)

    try:
        return by_chunks(losses, x, targets.long(), width=vocabulary, recompute=recompute)
    except IndexError:  # of torch on a CPU; it does not say what is out of bounds
        scored = targets[targets != -100]
        raise LrpeError(
            "targets must be at least 0 and below vocab_size, or -100 where nothing is scored; got "
            f"{int(scored.min())} to {int(scored.max())}."
        ) from None
