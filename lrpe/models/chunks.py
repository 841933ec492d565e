"""Token-wise functions and losses computed in chunks of tokens, so that their memory does not grow with the text."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lrpe.errors import require

TOKENS = 4096  # per chunk, over all rows: large enough for matrix products, and 32 MiB of a width of 2,048 in float32


def by_chunks(act: Callable[..., Tensor], *inputs: Tensor, recompute: bool) -> Tensor:
    """Return ``act`` of tensors (batch, n, ...), which is (batch, n, ...) too, chunk by chunk.

    Args:
        act: a function that treats every token on its own.
        inputs: its arguments.
        recompute: keep nothing for the backward pass but the inputs, and call ``act`` again there.
    """
    batch, n = inputs[0].shape[:2]
    size = max(1, TOKENS // max(1, batch))
    if n <= size or torch.compiler.is_compiling():
        return act(*inputs)

    def run(*chunk: Tensor) -> Any:
        return checkpoint(act, *chunk, use_reentrant=False) if recompute else act(*chunk)

    return torch.cat([run(*chunk) for chunk in zip(*(x.split(size, 1) for x in inputs), strict=True)], 1)


def token_losses(head: Callable[[Tensor], Tensor], x: Tensor, targets: Tensor, *, recompute: bool) -> Tensor:
    """Return the cross-entropy per token in nats, (batch, n), 0 where the target is -100.

    Args:
        head: the map from hidden states to logits, of which there are only those of a chunk.
        x: hidden states (batch, n, width).
        targets: the token to predict at each position, (batch, n).
        recompute: as for ``by_chunks``.

    Raises:
        LrpeError: the targets are not one per hidden state.
    """
    require(
        targets.shape == x.shape[:2],
        lambda: f"targets must have shape (batch, n) = {tuple(x.shape[:2])}; got {tuple(targets.shape)}.",
    )

    def losses(x: Tensor, targets: Tensor) -> Tensor:
        logits = head(x).flatten(0, 1).float()
        return F.cross_entropy(logits, targets.flatten(), reduction="none").view_as(targets)

    return by_chunks(losses, x, targets, recompute=recompute)
