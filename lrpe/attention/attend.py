"""Linear attention on ready queries, keys and values: φ, the encoding, the sum, the normaliser."""

import itertools

import torch
from torch import Tensor

from lrpe.attention.encoded_sum import encoded_sum, sums_at_once
from lrpe.attention.feature_map import FeatureMap
from lrpe.attention.features import Features, check_state, encode, hide, scale, tables_for
from lrpe.attention.frame import Frame
from lrpe.attention.normalizer import Normalizer
from lrpe.attention.state import DecodingState
from lrpe.attention.step import step
from lrpe.attention.summation import Bidirectional, Start, Summation, Sums, last_state
from lrpe.attention.tokens import Tokens, next_position
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.errors import require


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
    if state is not None and summation.causal and q.shape[-2] == 1:
        sums = step(q, k, v, encoding, phi, normalizer, decay, tokens, state)
        return normalizer(sums.out, sums.total).to(v.dtype), state_after(sums, tokens)
    plain = normalizer.delta == "plain"
    tables = q_table, k_table = tables_for(encoding, tokens, key_tokens, q, k)
    everywhere = isinstance(summation, Bidirectional) and decay is None and tokens.sequences is None and state is None
    if plain and everywhere and sums_at_once(encoding, tables, q, k, v):
        keys = hide(Features(phi(k), None), key_tokens.mask)
        return normalizer(*encoded_sum(phi(q), keys.encoded, v, encoding, tables)), None
    queries = scale(encode(q, "query", encoding, phi, q_table, plain), encoding)
    keys = hide(encode(k, "key", encoding, phi, k_table, plain), key_tokens.mask)
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
    sums = add_up(queries, keys, v, normalizer, summation, frame, tokens, state)
    out = normalizer(sums.out, sums.total).to(v.dtype)
    if not summation.causal:
        return out, None
    if tokens.bounds is not None:
        return out, packed_states(keys, v, normalizer, decay, tokens)
    return out, state_after(sums, tokens)


def add_up(queries, keys, v, normalizer, summation, frame, tokens, state) -> Sums:
    """The numerator and the Δ that the normaliser asks for."""
    start = None if state is None else Start(state.S, state.z, tokens.gap)
    alike = queries.plain is queries.encoded and keys.plain is keys.encoded  # as without an encoding
    if normalizer.delta != "plain" or alike:
        return summation(queries.encoded, keys.encoded, v, frame, normalizer.delta != "none", start)
    sums = summation(queries.encoded, keys.encoded, v, frame, False, start)
    nothing = v[..., :0]  # Δ is a sum of scores alone
    of_plain = None if start is None else start._replace(S=None)
    totals = summation(queries.plain, keys.plain, nothing, frame, True, of_plain)
    return sums._replace(total=totals.total, z=totals.z)


def state_after(sums: Sums, tokens: Tokens) -> DecodingState:
    """The state that a causal sum leaves."""
    assert sums.S is not None
    assert sums.z is not None
    assert tokens.next is not None
    return DecodingState(sums.S, sums.z, tokens.next)


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
