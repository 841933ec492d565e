"""The decay of softmax attention: a bias of scores per pair of tokens, or per key and block of queries."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from lrpe.attention.description import Order
from lrpe.attention.state import KeyValues
from lrpe.autograd import has_values, only_torch_operations
from lrpe.precision import in_float64

_BLOCKS = (256, 64, 16)  # queries whose keys share one bias; fewer where gates forget much
_LARGEST_BIAS = 128.0  # float32 resolves a score of this size to 8e-6


def decay_by_key(q: Tensor, seen: KeyValues, order: Order[KeyValues]) -> tuple[Tensor, int] | None:
    """Return the log-decay c of ordered tokens, summed up to each, and the size of a block for ``decayed_sum``.

    c is (batch or 1, key heads, n). None without a decay, where q's dtype would round a bias too much (some head
    forgets more than e^-128 within the smallest block), or where values must not be read.
    """
    if not (q.is_cpu and q.dtype in (torch.float32, torch.float64)):
        return None
    if only_torch_operations() or torch.is_autocast_enabled("cpu"):  # which would round the bias as it does keys
        return None
    c, tokens = seen.log_decay, torch.arange(q.shape[2], device=q.device)
    if c is None and order.log_decay is not None:
        c = in_float64(order.log_decay) * tokens
    if c is None or c.numel() == 0 or not has_values(c):
        return None
    for block in _BLOCKS:
        inside = (c[..., tokens - tokens % block] - c).detach().max()
        if bool(inside <= _LARGEST_BIAS):  # NaN, of a decay of 0, is not
            return c, block
    return None


def decayed_sum(q: Tensor, k: Tensor, v: Tensor, c: Tensor, block: int, dropout: float) -> Tensor:
    """Return softmax_{s ≤ t}(q_t·k_s + c_t - c_s) v for one sequence per row, without an n × n bias.

    A term that all keys of a query share cancels in its softmax, so a block of queries may replace c_t by the c of its
    first token; -c_s is then one more feature of each key. A key far behind the block has a large negative bias, whose
    rounding does not matter, because its weight is 0.
    """
    n, width, found = q.shape[2], v.shape[-1], []
    attend = partial(F.scaled_dot_product_attention, scale=1.0, dropout_p=dropout, enable_gqa=q.shape[1] != k.shape[1])
    q = torch.cat([q, torch.ones_like(q[..., :1])], -1)
    for start in range(0, n, block):
        stop = min(start + block, n)
        bias = (c[..., start, None] - c[..., :stop]).to(q.dtype).expand(q.shape[0], -1, -1)
        keys = torch.cat([k[:, :, :stop], bias[..., None]], -1)
        of_block = [pad_width(x, max(q.shape[-1], width)) for x in (q[:, :, start:stop], keys, v[:, :, :stop])]
        seen = torch.ones(stop - start, stop, dtype=torch.bool, device=q.device).tril(start)
        found.append(attend(*of_block, is_causal=True) if start == 0 else attend(*of_block, attn_mask=seen))
    return torch.cat(found, 2)[..., :width]


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


def pad_width(x: Tensor, width: int) -> Tensor:
    """Add zeros to the last axis: torch's fused kernels need one width for queries, keys and values."""
    return x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1]))
