"""The features of queries and keys: φ and the encoding, in the order that the encoding declares."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from lrpe.attention.feature_map import FeatureMap
from lrpe.attention.normalizer import Normalizer
from lrpe.attention.state import DecodingState
from lrpe.attention.tokens import Tokens, positions_of
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.errors import require


class Features(NamedTuple):
    """The encoded features, and the unencoded ones if the normaliser's Δ is summed from them."""

    encoded: Tensor  # (batch, heads, n, feature_dim)
    unencoded: Tensor | None  # (batch, heads, n, φ's width)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Features":
        return Features(change(self.encoded), None if self.unencoded is None else change(self.unencoded))

    def of_delta(self, normalizer: Normalizer) -> Tensor | None:
        """Return the features that Δ is summed from, or None if the normaliser has no Δ."""
        return {"encoded": self.encoded, "plain": self.unencoded, "none": None}[normalizer.delta]


def encode(x: Tensor, side: str, encoding: PositionalEncoding, phi: FeatureMap, table, plain: bool) -> Features:
    """Apply φ and the encoding to queries or keys."""
    encode_side = encoding.query if side == "query" else encoding.key
    if encoding.acts == "before":
        return Features(phi(encode_side(x, table)), phi(x) if plain else None)
    features = phi(x)
    return Features(encode_side(features, table), features if plain else None)


def encode_token(
    q: Tensor, k: Tensor, encoding: PositionalEncoding, phi: FeatureMap, position: Tensor, plain: bool
) -> tuple[Features, Features]:
    """Encode one token: the queries of each key head, (batch, key heads, group, d), and their key.

    All are at one position, (batch or 1, 1), so an encoding that is the same for both sides encodes them in one call:
    for one token, calls cost more than arithmetic.
    """
    group = q.shape[2]
    if encoding.one_for_both:
        table = encoding.table(position.expand(-1, group + 1), q.dtype)
        rows = encode(torch.cat([q, k], 2), "key", encoding, phi, table, plain)
        return rows.each(lambda x: x.narrow(2, 0, group)), rows.each(lambda x: x.narrow(2, group, 1))
    q_table, k_table = encoding.tables(position.expand(-1, group), position, q.dtype)
    return encode(q, "query", encoding, phi, q_table, plain), encode(k, "key", encoding, phi, k_table, plain)


def scale_queries(queries: Features, encoding: PositionalEncoding) -> Features:
    return queries if encoding.score_scale == 1 else queries.each(lambda x: x * encoding.score_scale)


def zero_padded_features(keys: Features, mask: Tensor | None) -> Features:
    """Set the features of padding to 0, after the encoding, so that neither the sum nor Δ contains padding."""
    if mask is None:
        return keys
    return keys.each(lambda x: torch.where(mask[:, None, :, None], x, 0))


def make_tables(encoding: PositionalEncoding, tokens: Tokens, key_tokens: Tokens, q: Tensor, k: Tensor):
    """Return the encoding's tables for queries and keys, which are the same object in self-attention."""
    axes = encoding.axes
    given = tokens.positions is not None and key_tokens.positions is not None
    require(given or axes == 1, f"An encoding of {axes} axes needs positions; pass positions=lrpe.positions.grid(...).")
    if key_tokens is tokens:
        table = encoding.table(positions_of(tokens, q), q.dtype)
        return table, table
    return encoding.tables(positions_of(tokens, q), positions_of(key_tokens, k), q.dtype)


def check_state_fits(state: DecodingState, keys: Features, v: Tensor, normalizer: Normalizer) -> None:
    """Refuse a state whose shapes or device differ from those of the input's features."""
    summed, (batch, heads, _, f) = keys.of_delta(normalizer), keys.encoded.shape
    expected = (batch, heads, f, v.shape[-1]), (batch, heads, 0 if summed is None else summed.shape[-1])
    found = tuple(state.S.shape), tuple(state.z.shape)
    require(found == expected, lambda: f"state must have S and z of shapes {expected}; got {found}.")
    devices = {state.S.device, state.z.device, v.device}
    require(len(devices) == 1, lambda: f"state must be on the input's device; got {sorted(map(str, devices))}.")
