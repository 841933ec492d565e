"""The recurrent form: one new token per batch row, and a state that holds all earlier tokens."""

import torch
from torch import Tensor

from lrpe.attention.feature_map import FeatureMap
from lrpe.attention.features import check_state_fits, encode_token, scale_queries, zero_padded_features
from lrpe.attention.full_precision import in_full_precision
from lrpe.attention.normalizer import Normalizer
from lrpe.attention.state import DecodingState
from lrpe.attention.summation import Sums
from lrpe.attention.tokens import Tokens
from lrpe.attention.weights import PairWeights
from lrpe.encodings.encoding import PositionalEncoding


def step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionalEncoding,
    phi: FeatureMap,
    normalizer: Normalizer,
    decay: Tensor | None,
    tokens: Tokens,
    state: DecodingState,
) -> Sums:
    """Return the numerator and Δ of one token, at a cost that does not depend on the number of earlier tokens."""
    assert tokens.positions is not None  # read_tokens gives positions whenever there is a state
    (batch, heads, n, _), key_heads = q.shape, k.shape[1]
    grouped = q.reshape(batch, key_heads, heads // key_heads, -1)
    queries, keys = encode_token(grouped, k, encoding, phi, tokens.positions, normalizer.delta == "plain")
    queries, keys = scale_queries(queries, encoding), zero_padded_features(keys, tokens.mask)
    check_state_fits(state, keys, v, normalizer)
    out, S = step_sum(queries.encoded, keys.encoded, v, PairWeights(decay), state.S, tokens.gap)
    out, summed = out.view(batch, heads, n, -1), keys.of_delta(normalizer)
    if summed is None:
        return Sums(out, out[..., :0], S, state.z)
    ones = summed.new_ones(1)  # z is the state of values that are all 1
    total, z = step_sum(queries.of_delta(normalizer), summed, ones, PairWeights(decay), state.z[..., None], tokens.gap)
    return Sums(out, total.view(batch, heads, n, 1), S, z[..., 0])


@in_full_precision
def step_sum(
    q: Tensor, k: Tensor, v: Tensor, pairs: PairWeights, S: Tensor, gap: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """S ← r^gap S + k vᵀ, o = q S for the queries q (batch, key heads, group, f) of each key; return o and S."""
    if pairs.decay is not None:
        r = pairs.decay.to(S.dtype) if gap is None else pairs.decay_over(gap, S.dtype)
        S = S * r.unsqueeze(-1).unsqueeze(-1)
    S = torch.addcmul(S, k.to(S.dtype).mT, v.to(S.dtype))
    return q.to(S.dtype) @ S, S
