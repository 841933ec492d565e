"""The final state of each packed sequence: S = Σ_s r^(e - p_s) k_s v_sᵀ, where e is the position of its last token."""

import torch
from torch import Tensor

from lrpe.attention.features import Features
from lrpe.attention.full_precision import in_full_precision
from lrpe.attention.normalizer import Normalizer
from lrpe.attention.state import DecodingState
from lrpe.attention.tokens import Tokens, positions_of
from lrpe.attention.weights import PairWeights
from lrpe.precision import compute_dtype

_BLOCK = 64  # the most tokens per block


def packed_states(
    keys: Features, v: Tensor, normalizer: Normalizer, decay: Tensor | None, tokens: Tokens
) -> DecodingState:
    """Return one state per sequence, empty ones included, as a batch; the keys and values are one row."""
    assert tokens.bounds is not None
    bounds, positions = tokens.bounds, positions_of(tokens, v)[0]
    lengths = bounds.diff()
    owner = torch.arange(len(lengths), device=v.device).repeat_interleave(lengths)  # the sequence of each token
    clock = tokens.clock()
    weight = None
    if decay is not None:
        clock = positions if clock is None else clock[0]
        since = clock[bounds[1:].sub(1)[owner]] - clock  # steps from each token to the last of its sequence
        weight = PairWeights(decay).decay_over(since[None], compute_dtype(v.dtype))[0, :, :, None]
    S, z = _sum_states(keys.encoded[0], keys.of_delta(normalizer), v[0], weight, owner, lengths)
    return DecodingState(S, z, _next_positions(positions, tokens.mask, owner, len(lengths)))


@in_full_precision
def _sum_states(
    k: Tensor, summed: Tensor | None, v: Tensor, weight: Tensor | None, owner: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Return Σ k vᵀ and Σ of Δ's keys per sequence: (sequences, heads, f, e) and (sequences, heads, f)."""
    dtype = compute_dtype(v.dtype)
    fade = (lambda x: x.to(dtype)) if weight is None else (lambda x: x.to(dtype) * weight)
    blocks, of_block = _cut_blocks(owner, lengths)
    K, V = (_gather_blocks(x, blocks) for x in (fade(k), v.to(dtype)))
    heads, f, e = k.shape[0], k.shape[-1], v.shape[-1]
    S = k.new_zeros(len(lengths), heads, f, e, dtype=dtype).index_add(0, of_block, (K.mT @ V).transpose(0, 1))
    if summed is None:
        return S, S.new_zeros(len(lengths), heads, 0)
    z = S.new_zeros(len(lengths), heads, summed.shape[-1])
    return S, z.index_add(0, owner, fade(summed[0]).transpose(0, 1))


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
