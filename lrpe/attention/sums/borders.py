"""The states at borders inside a row: after each packed sequence, and between the parts that several processes hold.

The state at a border e is S = Σ_s exp(c_e - c_s) k_s v_sᵀ over the tokens s since the border before.

A row that several processes hold takes a sum inside each part and one all-gather. With c_t summed from the beginning of
the own part of m tokens, every process sends F = Σ_s exp(c_m - c_s) k_s v_sᵀ and the carry exp(c_m).
P = Σ_j carry_{j+1} … carry_{r-1} F_j over the parts j before part r is the state before its first token, and
o_t = (the sum inside the part) + exp(c_t) q_t P. If the sum is not causal, later parts add exp(c_m - c_t) q_t Q, with
Q = Σ_j carry_{r+1} … carry_{j-1} B_j and B = Σ_s exp(c_s) k_s v_sᵀ. The size of what is sent does not depend on the
number of tokens (LASP-2, Sun et al., 2025).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lrpe.attention.state import DecodingState
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.attention.tokens import Tokens, positions_of
from lrpe.parallel import Part
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


def sum_over_parts(problem: Problem, part: Part, causal: bool, sum_inside: Callable[[Problem], Sums]) -> Sums:
    """Return the sums of the own tokens over the whole row, and if causal the state after the own part."""
    weights = _PartWeights.of(problem)
    summaries = [_summarize(problem, weights.after)]
    if not causal and weights.before is not None:
        summaries.append(_summarize(problem, weights.before))
    states = [state for summary in summaries for state in summary]
    sent = [*states, weights.carry]
    gathering = part.start_gather(torch.cat([x.flatten() for x in sent]))
    inside = sum_inside(problem)  # while the summaries of all processes are on their way
    *gathered, carries = _split(gathering.wait(), sent)
    count = len(summaries[0])
    before = [_fold(states[: part.rank], carries) for states in gathered[:count]]
    sums = _add(problem, inside, before, weights.before, weights.carry)
    if causal:
        return sums
    later = slice(part.rank + 1, None)
    after = [_fold(states[later].flip(0), carries[later].flip(0)) for states in gathered[-count:]]
    return _add(problem, sums, after, weights.after, None)


def continue_over_parts(shapes: Problem, part: Part, sum_after: Callable[[Tensor | None, Tensor | None], Sums]) -> Sums:
    """Return the same of a causal sum that is fused with its features, and so has neither these nor a numerator.

    It is computed twice: alone for the summary, and after the state of the earlier parts. Nothing overlaps with the
    all-gather, but no features are kept for the backward pass. What is sent is what ``sum_over_parts`` sends, so that
    processes may differ in which of the two they use.

    Args:
        shapes: a problem with the shapes of the features and the log-decay.
        part: the own part.
        sum_after: the sums after a state S and z.
    """
    summary = sum_after(None, None)
    assert summary.S is not None
    states = [summary.S] if summary.z is None else [summary.S, summary.z[..., None]]
    sent = [*states, _PartWeights.of(shapes).carry]
    *gathered, carries = _split(part.gather(torch.cat([x.flatten() for x in sent])), sent)
    S, *of_delta = (_fold(states[: part.rank], carries) for states in gathered)
    return sum_after(S, of_delta[0][..., 0] if of_delta else None)


class _PartWeights(NamedTuple):
    """The weights between the tokens of a part and its two ends; None if all are 1."""

    before: Tensor | None  # exp(c_t), (batch or 1, heads or 1, n, 1): from the last token of the part before
    after: Tensor | None  # exp(c_m - c_t), the same shape: to the last token of the part
    carry: Tensor  # exp(c_m), (batch, heads, 1, 1)

    @classmethod
    def of(cls, problem: Problem) -> "_PartWeights":
        k, dtype = problem.k, compute_dtype(problem.v.dtype)
        if problem.log_decay is None:
            return cls(None, None, k.new_ones(*k.shape[:2], 1, 1, dtype=dtype))
        c, forgotten = (F.pad(x, (1, 0)) for x in problem.summed_decay())  # the first is the end of the part before
        before = (c.exp() * (forgotten == 0)).to(k.device, dtype)
        after = ((c[..., -1:] - c).exp() * (forgotten == forgotten[..., -1:])).to(k.device, dtype)
        return cls(before[..., 1:, None], after[..., 1:, None], before[..., -1:, None].expand(*k.shape[:2], 1, 1))


@in_full_precision
def _summarize(problem: Problem, weight: Tensor | None) -> list[Tensor]:
    """Return Σ_s w_s k_s v_sᵀ and, if there is a Δ, Σ_s w_s k'_s as a column; (batch, heads, f, e) and (..., f', 1)."""
    dtype = compute_dtype(problem.v.dtype)
    v = problem.v.to(dtype) if weight is None else problem.v.to(dtype) * weight
    summary = [problem.k.to(dtype).mT @ v]
    if problem.delta_k is not None:
        ones = torch.ones_like(v[..., :1]) if weight is None else weight.expand(*v.shape[:3], 1)
        summary.append(problem.delta_k.to(dtype).mT @ ones)
    return summary


def _split(gathered: Tensor, like: list[Tensor]) -> list[Tensor]:
    """Return the tensors that each process sent in one row of ``gathered``: (processes, *shape) each."""
    pieces = gathered.split([x.numel() for x in like], -1)
    return [piece.unflatten(-1, x.shape) for piece, x in zip(pieces, like, strict=True)]


def _fold(states: Tensor, carries: Tensor) -> Tensor:
    """Return the state after these parts: each in turn decays the state before it and adds its own."""
    total = states[:0].sum(0)  # zeros with a gradient: every process must take part in the backward pass
    for state, carry in zip(states, carries, strict=False):
        total = total * carry + state
    return total


@in_full_precision
def _add(problem: Problem, sums: Sums, states: list[Tensor], weight: Tensor | None, carry: Tensor | None) -> Sums:
    """Add what the tokens beyond one end of the part contribute, given the states S and z at that end."""
    out = sums.out + _read(problem.q, states[0], weight)
    S = None if carry is None or sums.S is None else sums.S + carry * states[0]
    if sums.delta is None or problem.delta_q is None:
        return Sums(out, None, S, None)
    z = None if carry is None or sums.z is None else sums.z + (carry * states[1])[..., 0]
    return Sums(out, sums.delta + _read(problem.delta_q, states[1], weight), S, z)


def _read(q: Tensor, state: Tensor, weight: Tensor | None) -> Tensor:
    """Return w_t q_t S for q (batch, heads, n, f) and the state of each group of heads."""
    rows = q.to(state.dtype).unflatten(1, (state.shape[1], q.shape[1] // state.shape[1]))
    read = rows @ state.unsqueeze(2)
    return (read if weight is None else read * weight.unsqueeze(2)).flatten(1, 2)
