"""Linear attention on projected queries, keys and values: φ, the encoding, the sum, the normaliser."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lrpe.attention.decay import decay_between
from lrpe.attention.feature_map import FeatureMap
from lrpe.attention.normalizer import Features, Normalizer
from lrpe.attention.order import Order, check_cross_attention, make_tables, phases_of
from lrpe.attention.state import DecodingState
from lrpe.attention.steps import last_phase
from lrpe.attention.summation import Bidirectional, Summation
from lrpe.attention.sums.bidirectional import can_fuse, encoded_sum
from lrpe.attention.sums.packed import packed_states
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.attention.tokens import Tokens, positions_of
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.errors import require


class Choices(NamedTuple):
    """The independent choices of linear attention, beside the decay."""

    encoding: PositionalEncoding
    phi: FeatureMap
    normalizer: Normalizer
    summation: Summation


def sum_and_normalize(
    q: Tensor, k: Tensor, v: Tensor, choices: Choices, order: Order, wants_state: bool = True
) -> tuple[Tensor, DecodingState | None]:
    """Σ_s w_ts (M_t φ(q_t))·(M_s φ(k_s)) v_s, normalised; and the state after the last token, if the sum is causal."""
    normalizer, summation, state = choices.normalizer, choices.summation, order.state
    check_cross_attention(summation.causal, order)
    phase = phases_of(order, k)
    queries, keys, tables = _encode(q, k, choices, order, phase)
    log_decay = decay_between(order.log_decay, order.tokens)
    delta_q, delta_k = normalizer.delta_features(queries), normalizer.delta_features(keys)
    fusible = isinstance(summation, Bidirectional) and log_decay is None and delta_q is not None
    if fusible and delta_q is queries.plain and can_fuse(choices.encoding, tables, q, k, v):
        return normalizer(*encoded_sum(queries.plain, keys.plain, v, choices.encoding, tables)), None
    problem = Problem(queries.encoded, keys.encoded, v, delta_q, delta_k, log_decay)
    if state is not None and v.shape[2] > 0:
        check_state_fits(state, problem)
        problem = problem._replace(S=state.S, z=None if delta_k is None else state.z)
    sums = summation(problem)
    out = normalizer(sums.out, sums.delta).to(v.dtype)
    if not (summation.causal and wants_state):
        return out, None
    if order.tokens.bounds is not None:
        return out, packed_states(problem, order.tokens, phase)
    return out, state if state is not None and v.shape[2] == 0 else _state_after(sums, order.tokens, phase)


def _state_after(sums: Sums, tokens: Tokens, phase: Tensor | None) -> DecodingState:
    """Return the state after the last token of a causal sum."""
    assert sums.S is not None
    assert tokens.next is not None
    batch, heads = sums.S.shape[:2]
    z = sums.S.new_zeros(batch, heads, 0) if sums.z is None else sums.z
    return DecodingState(sums.S, z, tokens.next, None if phase is None else last_phase(phase, batch, heads))


def _encode(
    q: Tensor, k: Tensor, choices: Choices, order: Order, phase: Tensor | None
) -> tuple[Features, Features, tuple[Any, Any]]:
    """Return the features of queries, scaled, and of keys, which are 0 at padding; and the tables of the encoding."""
    encoding, mask = choices.encoding, order.keys.mask
    if order.state is not None and q.shape[2] == 1 and encoding.one_for_both and phase is None:
        queries, keys = _encode_token(q, k, choices, order.tokens)
        tables = (None, None)
    else:
        tables = make_tables(encoding, order, phase, q, k)
        queries = _features(q, encoding.query, tables[0], choices)
        keys = _features(k, encoding.key, tables[1], choices)
    if encoding.score_scale != 1:
        queries = queries.map(lambda x: x * encoding.score_scale)
    if mask is not None:  # after the encoding, so that neither the sum nor Δ contains padding
        keys = keys.map(lambda x: torch.where(mask[:, None, :, None], x, 0))
    return queries, keys, tables


def _features(x: Tensor, side: Callable[..., Tensor], table: Any, choices: Choices) -> Features:
    """Return φ and the encoding of x, in the order that the encoding declares."""
    phi = choices.phi
    if choices.encoding.acts == "before":
        return Features(lambda: phi(x), lambda: phi(side(x, table)))
    features = Features(lambda: phi(x), lambda: side(features.plain, table))
    return features


def _encode_token(q: Tensor, k: Tensor, choices: Choices, tokens: Tokens) -> tuple[Features, Features]:
    """Encode one token in a single call: the queries of each key head as rows, and their key as one more.

    All are at one position, (batch or 1, 1). For one token, calls cost more than arithmetic.
    """
    (batch, heads, _, width), key_heads = q.shape, k.shape[1]
    group = heads // key_heads
    rows = torch.cat([q if group == 1 else q.reshape(batch, key_heads, group, width), k], 2)
    table = choices.encoding.table(positions_of(tokens, k).expand(-1, group + 1), q.dtype)
    features = _features(rows, choices.encoding.key, table, choices)
    queries = features.map(lambda x: x.narrow(2, 0, group))
    if group > 1:
        queries = queries.map(lambda x: x.reshape(batch, heads, 1, x.shape[-1]))
    return queries, features.map(lambda x: x.narrow(2, group, 1))


def check_state_fits(state: DecodingState, problem: Problem) -> None:
    """Refuse a state whose shapes or device differ from those of the input's features."""
    (batch, heads, _, f), v, summed = problem.k.shape, problem.v, problem.delta_k
    expected = (batch, heads, f, v.shape[-1]), (batch, heads, 0 if summed is None else summed.shape[-1])
    found = tuple(state.S.shape), tuple(state.z.shape)
    require(found == expected, lambda: f"state must have S and z of shapes {expected}; got {found}.")
    devices = {state.S.device, state.z.device, v.device}
    require(len(devices) == 1, lambda: f"state must be on the input's device; got {sorted(map(str, devices))}.")
