"""The specification: every sum written out as an n × m matrix of weighted scores. Slow on purpose."""

import torch
from torch import Tensor

from lrpe.attention.full_precision import in_full_precision
from lrpe.attention.weights import Frame
from lrpe.precision import compute_dtype


@in_full_precision
def quadratic_sum(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    frame: Frame,
    causal: bool,
    S: Tensor | None = None,
    z: Tensor | None = None,
    gap: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Σ_s w_ts (q_t·k_s) v_s and Σ_s w_ts (q_t·k_s), with w_ts = r^|p_t - p_s| for the keys that t sees, else 0."""
    group, n = q.shape[1] // k.shape[1], q.shape[2]
    q, k, v = (x.to(compute_dtype(q.dtype)) for x in (q, k, v))
    scores = torch.einsum("bhtf,bhsf->bhts", q, k.repeat_interleave(group, 1))
    scores = scores * weights(frame, q, k, causal).repeat_interleave(scores.shape[1] // heads_of(frame, scores), 1)
    out, total = scores @ v.repeat_interleave(group, 1), scores.sum(-1, keepdim=True)
    if S is not None:
        p = frame.placed(n, q.device)
        since = p - p[:, :1] + (1 if gap is None else gap[:, None])
        faded = q * frame.fade(since, q.dtype).repeat_interleave(q.shape[1] // heads_of(frame, q), 1)[..., None]
        if frame.sequences is not None:
            faded = faded * (frame.sequences == frame.sequences[:, :1])[:, None, :, None]
        out = out + faded @ S.repeat_interleave(group, 1)
        total = total if z is None else total + faded @ z.repeat_interleave(group, 1)[..., None]
    return out, total


def heads_of(frame: Frame, x: Tensor) -> int:
    """How many heads the frame's weights have: those of its decay, or as many as x has."""
    return 1 if frame.decay is None else len(frame.decay)


def weights(frame: Frame, q: Tensor, k: Tensor, causal: bool) -> Tensor:
    """w_ts, (batch or 1, heads or 1, n, m)."""
    n, m = q.shape[2], k.shape[2]
    if frame.plain:
        everyone = torch.ones(1, 1, n, m, dtype=q.dtype, device=q.device)
        return everyone.tril() if causal else everyone
    p = frame.placed(n, q.device)
    w = frame.fade((p[:, :, None] - p[:, None, :]).abs(), q.dtype)
    if frame.sequences is not None:
        w = w * (frame.sequences[:, :, None] == frame.sequences[:, None, :])[:, None]
    return w.tril() if causal else w
