"""Linear attention on projected queries, keys and values: φ, the encoding, the sum, the normaliser."""

from torch import Tensor

from lrpe.attention.encoded_sum import can_fuse, encoded_sum
from lrpe.attention.feature_map import FeatureMap
from lrpe.attention.features import Features, check_state_fits, encode, make_tables, scale_queries, zero_padded_features
from lrpe.attention.inputs import check_cross_attention
from lrpe.attention.normalizer import Normalizer
from lrpe.attention.packed_states import packed_states
from lrpe.attention.recurrent import step
from lrpe.attention.state import DecodingState
from lrpe.attention.summation import Bidirectional, Start, Summation, Sums
from lrpe.attention.tokens import Tokens
from lrpe.attention.weights import PairWeights
from lrpe.encodings.encoding import PositionalEncoding


def sum_and_normalize(
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
    wants_state: bool = True,
) -> tuple[Tensor, DecodingState | None]:
    """Σ_s w_ts (M_t φ(q_t))·(M_s φ(k_s)) v_s, normalised; and the state after the last token, if the sum is causal."""
    if state is not None and summation.causal and q.shape[-2] == 1:
        sums = step(q, k, v, encoding, phi, normalizer, decay, tokens, state)
        return normalizer(sums.out, sums.total).to(v.dtype), _state_after(sums, tokens)
    if key_tokens is not tokens:
        check_cross_attention(summation.causal, decay)
    plain = normalizer.delta == "plain"
    tables = q_table, k_table = make_tables(encoding, tokens, key_tokens, q, k)
    # can_fuse covers the encoding; the fused sum also needs all weights to be 1 and no initial state.
    everywhere = isinstance(summation, Bidirectional) and decay is None and tokens.sequences is None and state is None
    if plain and everywhere and can_fuse(encoding, tables, q, k, v):
        keys = zero_padded_features(Features(phi(k), None), key_tokens.mask)
        return normalizer(*encoded_sum(phi(q), keys.encoded, v, encoding, tables)), None
    queries = scale_queries(encode(q, "query", encoding, phi, q_table, plain), encoding)
    keys = zero_padded_features(encode(k, "key", encoding, phi, k_table, plain), key_tokens.mask)
    if state is not None:
        check_state_fits(state, keys, v, normalizer)
    sums = _sum_over_keys(queries, keys, v, normalizer, summation, decay, tokens, state)
    out = normalizer(sums.out, sums.total).to(v.dtype)
    if not (summation.causal and wants_state):
        return out, None
    if tokens.bounds is not None:
        return out, packed_states(keys, v, normalizer, decay, tokens)
    return out, state if state is not None and q.shape[-2] == 0 else _state_after(sums, tokens)


def _sum_over_keys(queries, keys, v, normalizer, summation, decay, tokens, state) -> Sums:
    """Return the numerator and, if the normaliser uses one, Δ."""
    start = None if state is None or v.shape[-2] == 0 else Start(state.S, state.z, tokens.gap)
    clock = None if decay is None or v.shape[-2] == 0 else tokens.clock()
    pairs = PairWeights(decay, clock, tokens.sequences)
    alike = queries.unencoded is queries.encoded and keys.unencoded is keys.encoded  # true without an encoding
    if normalizer.delta != "plain" or alike:
        return summation(queries.encoded, keys.encoded, v, pairs, normalizer.delta != "none", start)
    sums = summation(queries.encoded, keys.encoded, v, pairs, False, start)
    nothing = v[..., :0]  # Δ sums scores only; values of width 0 skip the numerator
    of_plain = None if start is None else start._replace(S=None)
    totals = summation(queries.unencoded, keys.unencoded, nothing, pairs, True, of_plain)
    return sums._replace(total=totals.total, z=totals.z)


def _state_after(sums: Sums, tokens: Tokens) -> DecodingState:
    """Return the state after the last token of a causal sum."""
    assert sums.S is not None
    assert sums.z is not None
    assert tokens.next is not None
    return DecodingState(sums.S, sums.z, tokens.next)
