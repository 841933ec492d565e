"""The final state of each packed sequence: S = Σ_s exp(c_e - c_s) k_s v_sᵀ, where e is its last token."""

import torch
from torch import Tensor

from lrpe.attention.state import DecodingState
from lrpe.attention.sums.problem import Problem
from lrpe.attention.tokens import Tokens, positions_of
from lrpe.precision import compute_dtype, in_full_precision

_BLOCK = 64  # the most tokens per block


def packed_states(problem: Problem, tokens: Tokens, phase: Tensor | None) -> DecodingState:
    """Return one state per sequence, empty ones included, as a batch; the problem has one row."""
    assert tokens.bounds is not None
    bounds, positions = tokens.bounds, positions_of(tokens, problem.v)[0]
    lengths = bounds.diff()
    owner = torch.arange(len(lengths), device=bounds.device).repeat_interleave(lengths)  # the sequence of each token
    last = bounds[1:].sub(1)  # the last token of each sequence
    S, z = _sum_states(problem, _weights_at_the_end(problem, last[owner]), owner, lengths)
    place = _next_positions(positions, tokens.mask, owner, len(lengths))
    return DecodingState(S, z, place, None if phase is None else _phases_at_the_end(phase, last, problem))


def _weights_at_the_end(problem: Problem, last: Tensor) -> Tensor | None:
    """Return exp(c_e - c_s) from each token s to the last one e of its sequence, (heads or 1, n, 1)."""
    if problem.log_decay is None:
        return None
    c, forgotten = (x[0] for x in problem.summed_decay())
    c_last, forgotten_last = (x.index_select(-1, last.to(x.device)) for x in (c, forgotten))
    weight = (c_last - c).exp() * (forgotten_last == forgotten)
    return weight.to(problem.v.device, compute_dtype(problem.v.dtype))[..., None]


def _phases_at_the_end(phase: Tensor, last: Tensor, problem: Problem) -> Tensor:
    """Return the phase after each sequence, (sequences, key heads, 1 or angles).

    An empty sequence has the phase of the one before it: nothing is summed yet, so any phase will do.
    """
    per_angle = phase[0] if phase.ndim == 4 else phase[0, ..., None]  # (heads or 1, n, 1 or angles)
    ends = torch.nn.functional.pad(per_angle, (0, 0, 1, 0)).index_select(1, (last + 1).to(phase.device))
    return ends.transpose(0, 1).expand(-1, problem.k.shape[1], -1)


@in_full_precision
def _sum_states(problem: Problem, weight: Tensor | None, owner: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return Σ k vᵀ and Σ of Δ's keys per sequence: (sequences, heads, f, e) and (sequences, heads, f')."""
    dtype, (k, v) = compute_dtype(problem.v.dtype), (problem.k[0], problem.v[0])
    fade = (lambda x: x.to(dtype)) if weight is None else (lambda x: x.to(dtype) * weight)
    blocks, of_block = _cut_blocks(owner, lengths)
    K, V = (_gather_blocks(x, blocks) for x in (fade(k), v.to(dtype)))
    heads, f, e = k.shape[0], k.shape[-1], v.shape[-1]
    S = k.new_zeros(len(lengths), heads, f, e, dtype=dtype).index_add(0, of_block, (K.mT @ V).transpose(0, 1))
    if problem.delta_k is None:
        return S, S.new_zeros(len(lengths), heads, 0)
    z = S.new_zeros(len(lengths), heads, problem.delta_k.shape[-1])
    return S, z.index_add(0, owner, fade(problem.delta_k[0]).transpose(0, 1))


def _cut_blocks(owner: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Cut each sequence into blocks about as long as the mean sequence, so that little padding is needed.

    Return the tokens of each block, (blocks, C), with n as padding, and the sequence of each block.
    """
    n, count = len(owner), len(lengths)
    C = min(max(-(-n // max(count, 1)), 1), _BLOCK)
    each = (lengths + C - 1) // C  # blocks per sequence
    of_block = torch.arange(count, device=owner.device).repeat_interleave(each)
    token = torch.arange(n, device=owner.device)
    within = token - (lengths.cumsum(0) - lengths)[owner]
    slot = (each.cumsum(0) - each)[owner] * C + within  # blocks are ordered by sequence
    blocks = torch.full((len(of_block) * C,), n, device=owner.device).index_copy(0, slot, token)
    return blocks.view(-1, C), of_block


def _gather_blocks(x: Tensor, blocks: Tensor) -> Tensor:
    """Gather the rows of x (heads, n, d) in blocks, (heads, blocks, C, d); row n is zeros."""
    rows = torch.nn.functional.pad(x, (0, 0, 0, 1)).index_select(1, blocks.flatten())
    return rows.unflatten(1, blocks.shape)


def _next_positions(positions: Tensor, mask: Tensor | None, owner: Tensor, count: int) -> Tensor:
    """Return one past the position of each sequence's last real token, (sequences,); 0 if there is none."""
    nowhere = torch.iinfo(torch.long).min
    real = positions if mask is None else positions.masked_fill(~mask[0], nowhere)
    last = torch.full((count,), nowhere, device=owner.device).scatter_reduce(0, owner, real, "amax")
    return torch.where(last == nowhere, 0, last + 1)
