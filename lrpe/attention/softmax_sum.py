"""Σ_s softmax_s(score_ts) v_s over the keys that a query sees; 0 if it sees none."""

import math
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lrpe.attention.tokens import Tokens
from lrpe.precision import compute_dtype, in_float64


class Visibility(NamedTuple):
    """Which keys a query sees: the real ones of its own sequence, and if causal, no later ones."""

    causal: bool
    tokens: Tokens  # of the queries; if causal, the last tokens of ``keys``
    keys: Tokens

    @property
    def same_tokens(self) -> bool:
        """Whether queries and keys are of the same tokens, by identity: sizes may be symbolic in an export."""
        return self.tokens is self.keys

    @property
    def unmasked(self) -> bool:
        """Whether no key is hidden by padding or by packing."""
        return self.keys.mask is None and self.tokens.sequences is None

    def matrix(self, n: int, m: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return where a query sees a key, (batch or 1, 1, n, m), and where it sees none, (batch or 1, 1, n, 1).

        A query without keys is shown all of them to keep its softmax and gradient finite; callers zero its output.
        """
        seen = torch.ones(1, 1, n, m, dtype=torch.bool, device=device)
        if self.causal:
            seen = seen.tril(m - n)
        if self.keys.mask is not None:
            seen = seen & self.keys.mask[:, None, None, :]
        if self.tokens.sequences is not None:
            own = self.tokens.sequences
            seen = seen & (own[:, None, :, None] == own[:, None, None, :])
        none = ~seen.any(-1, keepdim=True)
        return seen | none, none


def product_sum(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    visibility: Visibility,
    *,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Return softmax(scale q·k + bias) v for q (batch, heads, n, f), k and v (batch, key heads, m, f or e)."""
    n, m, width = q.shape[2], k.shape[2], v.shape[-1]
    if visibility.same_tokens or n > 1:  # torch's fused kernels need one width; zeros change nothing
        q, k, v = (_pad_width(x, max(q.shape[-1], width)) for x in (q, k, v))
    attend = partial(
        F.scaled_dot_product_attention, scale=scale, dropout_p=dropout, enable_gqa=q.shape[1] != k.shape[1]
    )
    if visibility.unmasked and bias is None and (visibility.same_tokens or not visibility.causal or n == 1):
        # A single causal query after a state is the last token, which sees every key: is_causal would hide them.
        return attend(q, k, v, is_causal=visibility.causal and visibility.same_tokens)[..., :width]
    seen, none = visibility.matrix(n, m, q.device)
    mask = seen if bias is None else bias.masked_fill(~seen, -math.inf)
    return attend(q, k, v, mask)[..., :width].masked_fill(none, 0)


def score_sum(scores: Tensor, v: Tensor, visibility: Visibility, dropout: float = 0.0) -> Tensor:
    """Return softmax(scores) v for given scores (batch, heads, n, m)."""
    seen, none = visibility.matrix(scores.shape[2], scores.shape[3], scores.device)
    weights = scores.to(compute_dtype(scores.dtype)).masked_fill(~seen, -math.inf).softmax(-1)
    return (F.dropout(weights, dropout).to(v.dtype) @ repeat_for_queries(v, scores)).masked_fill(none, 0)


def _pad_width(x: Tensor, width: int) -> Tensor:
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))


def repeat_for_queries(x: Tensor, queries: Tensor) -> Tensor:
    """Repeat keys or values for the query heads: query head h uses key head h // group."""
    return x.repeat_interleave(queries.shape[1] // x.shape[1], 1)


def head_bias(log_r: Tensor, t: Tensor, s: Tensor, q: Tensor) -> Tensor:
    """Return |t - s| ln r, which a softmax turns into r^|t-s|, (..., heads, n, m); t and s are (batch or 1, n or m)."""
    distance = in_float64((t[:, None, :, None] - s[:, None, None, :]).abs())
    return _bias(log_r.unsqueeze(-1).to(distance) * distance, q)


def token_bias(c: Tensor, q: Tensor) -> Tensor:
    """Return -|c_t - c_s| for the summed log-decay c (batch, key heads, m), whose last n entries are the queries'."""
    n, m = q.shape[2], c.shape[-1]
    later = torch.ones(n, m, dtype=c.dtype, device=c.device).triu(m - n + 1)
    return _bias((c[..., m - n :, None] - c[..., None, :]) * (1 - 2 * later), q)


def _bias(bias: Tensor, q: Tensor) -> Tensor:
    """Return the bias of key heads for the queries, finite, because -inf would hide the key."""
    bias = bias.clamp(min=torch.finfo(q.dtype).min / 2).to(q.device, q.dtype)
    return bias.repeat_interleave(q.shape[1] // bias.shape[1], 1)
