"""Linear attention on ready queries, keys and values: φ, the encoding, the sum, the normaliser."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from lrpe.attention.encoded_sum import encoded_sum, sums_at_once
from lrpe.attention.feature_map import FeatureMap
from lrpe.attention.frame import Frame
from lrpe.attention.normalizer import Normalizer
from lrpe.attention.state import DecodingState, step_sum
from lrpe.attention.summation import Bidirectional, Start, Summation, Sums, last_state
from lrpe.attention.tokens import Tokens, place
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.errors import require


class Features(NamedTuple):
    """What is summed: the encoded features, and the plain ones if the normaliser's Δ is summed from those."""

    encoded: Tensor  # (batch, heads, n, feature_dim)
    plain: Tensor | None  # (batch, heads, n, φ's width)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Features":
        return Features(change(self.encoded), None if self.plain is None else change(self.plain))


def encode(x: Tensor, side: str, encoding: PositionalEncoding, phi: FeatureMap, table, plain: bool) -> Features:
    """φ and the encoding of queries or keys, in the order that the encoding declares."""
    encode_side = encoding.query if side == "query" else encoding.key
    if encoding.acts == "before":
        return Features(phi(encode_side(x, table)), phi(x) if plain else None)
    features = phi(x)
    return Features(encode_side(features, table), features if plain else None)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionalEncoding,
    phi: FeatureMap,
    normalizer: Normalizer,
    summation: Summation,
    decay: Tensor | None,
    tokens: Tokens,
    key_tokens: Tokens,
    state: DecodingState | None = None,
) -> tuple[Tensor, DecodingState | None]:
    """Σ_s w_ts (M_t φ(q_t))·(M_s φ(k_s)) v_s, normalised; and the state after the last token, if the sum is causal."""
    plain = normalizer.delta == "plain"
    tables = q_table, k_table = tables_for(encoding, tokens, key_tokens, q, k)
    everywhere = isinstance(summation, Bidirectional) and decay is None and tokens.sequences is None and state is None
    if plain and everywhere and sums_at_once(encoding, tables, q, k, v):
        keys = hide(Features(phi(k), None), key_tokens.mask)
        return normalizer(*encoded_sum(phi(q), keys.encoded, v, encoding, tables)), None
    queries = encode(q, "query", encoding, phi, q_table, plain)
    keys = hide(encode(k, "key", encoding, phi, k_table, plain), key_tokens.mask)
    if encoding.score_scale != 1:
        queries = queries.each(lambda x: x * encoding.score_scale)
    if key_tokens is not tokens:
        require(
            not summation.causal, "Cross-attention puts no order between queries and keys: its sum is bidirectional."
        )
        require(decay is None, "A decay counts steps between tokens of one sequence; cross-attention has none.")
    frame = Frame(decay, None if decay is None else tokens.clock(), tokens.sequences)
    if state is not None:
        check_state(state, keys, v, normalizer)
        if q.shape[-2] == 0:
            return v.new_empty(*q.shape[:3], v.shape[-1]), state
    one_step = summation.causal and state is not None and q.shape[-2] == 1
    sums = (step if one_step else add_up)(queries, keys, v, normalizer, summation, frame, tokens, state)
    out = normalizer(sums.out, sums.total).to(v.dtype)
    if not summation.causal:
        return out, None
    if tokens.bounds is not None:
        return out, packed_states(keys, v, normalizer, decay, tokens)
    assert sums.S is not None
    assert sums.z is not None
    return out, DecodingState(sums.S, sums.z, next_position(tokens, q, state))


def check_state(state: DecodingState, keys: Features, v: Tensor, normalizer: Normalizer) -> None:
    """A state has the sizes of the features that it is summed from."""
    summed = {"encoded": keys.encoded, "plain": keys.plain, "none": keys.encoded[..., :0]}[normalizer.delta]
    assert summed is not None
    expected = (*keys.encoded.shape[:2], keys.encoded.shape[-1], v.shape[-1]), (*summed.shape[:2], summed.shape[-1])
    found = (tuple(state.S.shape), tuple(state.z.shape))
    require(found == expected, lambda: f"The state here has S and z of shapes {expected}; got {found}.")
    devices = {state.S.device, state.z.device, v.device}
    require(len(devices) == 1, lambda: f"The state lives where the input does; got {sorted(map(str, devices))}.")


def tables_for(encoding: PositionalEncoding, tokens: Tokens, key_tokens: Tokens, q: Tensor, k: Tensor):
    """The encoding's tables for queries and keys: one and the same in self-attention."""
    axes = encoding.axes
    given = tokens.positions is not None and key_tokens.positions is not None
    require(given or axes == 1, f"On a grid of {axes} axes attention needs positions=lrpe.positions.grid(...).")
    if key_tokens is tokens:
        table = encoding.table(place(tokens, q), q.dtype)
        return table, table
    return encoding.tables(place(tokens, q), place(key_tokens, k), q.dtype)


def hide(keys: Features, mask: Tensor | None) -> Features:
    """Padding gets features of 0 once, after encoding, so that the sum and its Δ agree."""
    if mask is None:
        return keys
    return keys.each(lambda x: torch.where(mask[:, None, :, None], x, 0))


def add_up(queries, keys, v, normalizer, summation, frame, tokens, state) -> Sums:
    """The numerator and the Δ that the normaliser asks for."""
    start = None if state is None else Start(state.S, state.z, gap(tokens, state))
    alike = queries.plain is queries.encoded and keys.plain is keys.encoded  # as without an encoding
    if normalizer.delta != "plain" or alike:
        return summation(queries.encoded, keys.encoded, v, frame, normalizer.delta != "none", start)
    sums = summation(queries.encoded, keys.encoded, v, frame, False, start)
    nothing = v[..., :0]  # Δ is a sum of scores alone
    of_plain = None if start is None else start._replace(S=None)
    totals = summation(queries.plain, keys.plain, nothing, frame, True, of_plain)
    return sums._replace(total=totals.total, z=totals.z)


def step(queries, keys, v, normalizer, summation, frame, tokens, state) -> Sums:
    """The same for one token, at a cost that does not depend on how many came before."""
    since = None if frame.decay is None else gap(tokens, state)
    out, S = step_sum(queries.encoded, keys.encoded, v, frame, state.S, since)
    if normalizer.delta == "none":
        return Sums(out, out[..., :0], S, state.z)
    q, k = (queries.plain, keys.plain) if normalizer.delta == "plain" else (queries.encoded, keys.encoded)
    total, z = step_sum(q, k, k.new_ones(1), frame, state.z[..., None], since)
    return Sums(out, total, S, z[..., 0])


def packed_states(keys: Features, v: Tensor, normalizer: Normalizer, decay, tokens: Tokens) -> DecodingState:
    """The last state of each packed sequence: a batch of as many states as there are sequences."""
    assert tokens.bounds is not None
    assert tokens.positions is not None
    clock = tokens.clock()
    assert clock is not None
    summed = keys.encoded if keys.plain is None else keys.plain
    states = []
    for first, last in itertools.pairwise(tokens.bounds):
        cut = slice(first, last)
        frame = Frame(decay, clock[:, cut])
        S, _ = last_state(keys.encoded[:, :, cut], v[:, :, cut], frame, None)
        _, z = last_state(summed[:, :, cut], v[:, :, cut], frame, None)
        alone = Tokens(tokens.positions[:, cut], None if tokens.mask is None else tokens.mask[:, cut], None)
        z = z if normalizer.delta != "none" else z[..., :0]
        states.append((S, z, next_position(alone, v[:, :, cut], None)))
    return DecodingState(*(torch.cat(parts) for parts in zip(*states, strict=True)))


def gap(tokens: Tokens, state: DecodingState) -> Tensor:
    """How far the state stands before the first token: 1 if they follow one another; 0 if that token is padding."""
    positions = tokens.clock()
    assert positions is not None  # read_tokens gives positions whenever there is a state
    since = positions[:, 0] - state.position + 1
    return since if tokens.mask is None else since.clamp(min=0)


def next_position(tokens: Tokens, x: Tensor, state: DecodingState | None) -> Tensor:
    """One past the position of the last sequence's last real token, (batch,); where there is none, where it was."""
    batch, n = x.shape[0], x.shape[-2]
    before = torch.zeros(batch, dtype=torch.long, device=x.device) if state is None else state.position
    if tokens.positions is None or n == 0:
        return before + n
    place = tokens.positions if tokens.positions.ndim == 2 else tokens.positions.amax(-1)
    if tokens.mask is None and tokens.sequences is None:
        return place.amax(-1).expand(batch) + 1
    nowhere = torch.iinfo(torch.long).min
    if tokens.mask is not None:
        place = place.masked_fill(~tokens.mask, nowhere)
    if tokens.sequences is not None:
        place = place.masked_fill(tokens.sequences != tokens.sequences[:, -1:], nowhere)
    last = place.amax(-1)
    return torch.where(last == nowhere, before, last + 1)
