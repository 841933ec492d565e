"""The specification of every sum, by the n × m matrix of weighted scores: plain rather than fast."""

import torch
from torch import Tensor

from lrpe.attention.full_precision import in_full_precision
from lrpe.attention.weights import PairWeights
from lrpe.precision import compute_dtype


@in_full_precision
def quadratic_sum(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pairs: PairWeights,
    causal: bool,
    S: Tensor | None = None,
    z: Tensor | None = None,
    gap: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Σ_s w_ts (q_t·k_s) v_s and Σ_s w_ts (q_t·k_s), from an initial state (S, z) if one is given; see ``weights``."""
    group, n = q.shape[1] // k.shape[1], q.shape[2]
    q, k, v = (x.to(compute_dtype(q.dtype)) for x in (q, k, v))
    scores = torch.einsum("bhtf,bhsf->bhts", q, k.repeat_interleave(group, 1))
    scores = scores * weights(pairs, q, k, causal).repeat_interleave(scores.shape[1] // _count_heads(pairs), 1)
    out, total = scores @ v.repeat_interleave(group, 1), scores.sum(-1, keepdim=True)
    if S is not None:
        p = pairs.token_positions(n, q.device)
        since = p - p[:, :1] + (1 if gap is None else gap[:, None])
        faded = q * pairs.decay_over(since, q.dtype).repeat_interleave(q.shape[1] // _count_heads(pairs), 1)[..., None]
        if pairs.sequences is not None:
            faded = faded * (pairs.sequences == pairs.sequences[:, :1])[:, None, :, None]
        out = out + faded @ S.repeat_interleave(group, 1)
        total = total if z is None else total + faded @ z.repeat_interleave(group, 1)[..., None]
    return out, total


def _count_heads(pairs: PairWeights) -> int:
    """Return the size of the weights' head axis: one per key head with a decay, else 1."""
    return 1 if pairs.decay is None else len(pairs.decay)


def weights(pairs: PairWeights, q: Tensor, k: Tensor, causal: bool) -> Tensor:
    """Return w_ts = r^|p_t - p_s| for the keys that query t sees, else 0: (batch or 1, heads or 1, n, m)."""
    n, m = q.shape[2], k.shape[2]
    if pairs.all_ones:
        everyone = torch.ones(1, 1, n, m, dtype=q.dtype, device=q.device)
        return everyone.tril() if causal else everyone
    p = pairs.token_positions(n, q.device)
    w = pairs.decay_over((p[:, :, None] - p[:, None, :]).abs(), q.dtype)
    if pairs.sequences is not None:
        w = w * (pairs.sequences[:, :, None] == pairs.sequences[:, None, :])[:, None]
    return w.tril() if causal else w
