"""Linear attention: the equation on projected queries, keys and values, and the layer that projects them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lrpe.attention.choices import (
    DEFAULT_ENCODING,
    Bidirectional,
    Causal,
    EncodingChoice,
    Summation,
    choose_encoding,
    choose_summation,
    complete,
    configure_features,
)
from lrpe.attention.decay import DecayChoice, decay_between
from lrpe.attention.description import (
    Choices,
    OneToken,
    Order,
    Unencoded,
    check_cross_attention,
    check_state_fits,
    describe_sum,
    describe_token,
    last_phase,
    make_tables,
    phases_of,
)
from lrpe.attention.engines.choice import Engine, allows, choose_engine
from lrpe.attention.feature_map import FeatureMap, choose_feature_map, feature_width
from lrpe.attention.layer import AttentionLayer, Heads
from lrpe.attention.normalizer import Features, Normalizer, choose_normalizer
from lrpe.attention.state import DecodingState, check_decoding_state
from lrpe.attention.sums.borders import continue_over_parts, packed_states, sum_over_parts
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.attention.tokens import Tokens, positions_of
from lrpe.autograd import registered
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.encodings.stochastic import StochasticEncoding
from lrpe.errors import check_count, require
from lrpe.parallel import Part
from lrpe.precision import compute_dtype, in_dtype


def sum_and_normalize(
    q: Tensor, k: Tensor, v: Tensor, choices: Choices, order: Order, wants_state: bool = True
) -> tuple[Tensor, DecodingState | None]:
    """Σ_s w_ts (M_t φ(q_t))·(M_s φ(k_s)) v_s, normalised; and the state after the last token, if the sum is causal."""
    normalizer, summation, state = choices.normalizer, choices.summation, order.state
    check_cross_attention(summation.causal, order)
    phase, part = phases_of(order, k), order.tokens.part
    wants_state = wants_state and summation.causal
    _check_part(choices.encoding, order.tokens, wants_state)
    unencoded = _describe(q, k, v, choices, order, phase)
    separate_states = order.tokens.bounds is not None and wants_state  # one per sequence, summed from the features
    if unencoded is not None and not separate_states:
        engine = choose_engine(unencoded)
        # Torch's computes each of the features when it is first needed, as below.
        if engine.name != "torch" if part is None else _continues_parts(engine, summation):
            sums = _sum_described(engine, unencoded, part)
            out = sums.out if unencoded.delta else normalizer(sums.out, None)
            return in_dtype(out, v.dtype), _state_after(sums, order.tokens, phase) if wants_state else None
    queries, keys = _encode(q, k, choices, order, phase)
    log_decay = decay_between(order.log_decay, order.tokens)
    delta_q, delta_k = normalizer.delta_features(queries), normalizer.delta_features(keys)
    problem = Problem(queries.encoded, keys.encoded, v, delta_q, delta_k, log_decay)
    if state is not None and v.shape[2] > 0:
        check_state_fits(state, problem)
        problem = problem._replace(S=state.S, z=None if delta_k is None else state.z)
    sums = summation(problem) if part is None else sum_over_parts(problem, part, summation.causal, summation)
    out = normalizer(sums.out, sums.delta).to(v.dtype)
    if not wants_state:
        return out, None
    if order.tokens.bounds is not None:
        return out, packed_states(problem, order.tokens, phase)
    return out, state if state is not None and v.shape[2] == 0 else _state_after(sums, order.tokens, phase)


def _describe(
    q: Tensor, k: Tensor, v: Tensor, choices: Choices, order: Order, phase: Tensor | None
) -> Unencoded | OneToken | None:
    """Return the problem before φ and the encoding, for engines that compute the features, or None."""
    if torch.compiler.is_compiling() or type(choices.summation) not in (Causal, Bidirectional):
        return None
    if q.shape[2] > 1 or order.state is None:
        return describe_sum(q, k, v, choices, order, phase)
    return describe_token(q, k, v, choices, order, phase) if allows("native") else None  # no other engine takes it


def _continues_parts(engine: Engine, summation: Summation) -> bool:
    """Return whether an engine is to sum a part of a row from its description, twice, once after the earlier parts.

    Only the native one keeps no features. Others overlap the sum of a part with what the processes send. A sum that is
    not causal continues no state.
    """
    return engine.name == "native" and summation.causal


def _sum_described(engine: Engine, problem: Unencoded | OneToken, part: Part | None) -> Sums:
    """Return the sums by an engine that computes the features itself, of a whole row or of a part."""
    if part is None:
        return engine.sums(problem)
    assert isinstance(problem, Unencoded)  # a token after a state is no part of a row
    shapes = problem.shapes()._replace(log_decay=problem.log_decay)
    return continue_over_parts(shapes, part, lambda S, z: engine.sums(problem._replace(S=S, z=z, summary=S is None)))


def _check_part(encoding: PositionalEncoding, tokens: Tokens, wants_state: bool) -> None:
    """Refuse what a part of a row that several processes hold cannot have."""
    if tokens.part is None:
        return
    require(
        not (isinstance(encoding, StochasticEncoding) and encoding.training),
        "encoding='spe' draws other noise on each process while it trains, so that their scores do not match. Call "
        "eval(), or use another encoding inside lrpe.parallel.context.",
    )
    require(
        not (wants_state and tokens.whole is not None and tokens.whole.bounds is not None),
        "A part of a row has no states of the packed sequences in other parts. Pass output_final_state=False or use "
        "forward, or pass sequences instead of cu_seqlens for the state after the own part.",
    )


def _state_after(sums: Sums, tokens: Tokens, phase: Tensor | None) -> DecodingState:
    """Return the state after the last token of a causal sum."""
    assert sums.S is not None
    assert tokens.next is not None
    batch, heads = sums.S.shape[:2]
    z = sums.S.new_zeros(batch, heads, 0) if sums.z is None else sums.z
    return DecodingState(sums.S, z, tokens.next, None if phase is None else last_phase(phase, batch, heads))


def _encode(q: Tensor, k: Tensor, choices: Choices, order: Order, phase: Tensor | None) -> tuple[Features, Features]:
    """Return the features of queries, scaled, and of keys, which are 0 at padding."""
    encoding, mask = choices.encoding, order.keys.mask
    if order.state is not None and q.shape[2] == 1 and encoding.one_for_both and phase is None:
        queries, keys = _encode_token(q, k, choices, order.tokens)
    else:
        tables = make_tables(encoding, order, phase, q, k)
        queries = _features(q, encoding.query, tables[0], choices)
        keys = _features(k, encoding.key, tables[1], choices)
    if encoding.score_scale != 1:
        queries = queries.map(lambda x: x * encoding.score_scale)
    if mask is not None:  # after the encoding, so that neither the sum nor Δ contains padding
        keys = keys.map(lambda x: torch.where(mask[:, None, :, None], x, 0))
    return queries, keys


def _features(x: Tensor, side: Callable[..., Tensor], table: Any, choices: Choices) -> Features:
    """Return φ and the encoding of x, in the order that the encoding declares."""
    phi = choices.phi
    if choices.encoding.acts == "before":
        return Features(lambda: phi(x), lambda _: phi(side(x, table)))
    return Features(lambda: phi(x), lambda features: side(features.plain, table))


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


class LinearAttention(AttentionLayer[DecodingState]):
    """o_t = N(Σ_s w_ts (M_t φ(q_t))·(M_s φ(k_s)) v_s).

    Encoding, feature map, normaliser, summation and decay are independent choices. "default" is the part that a named
    encoding was published with (``lrpe.attention.choices.MEMBERS``: pope, retnet, lrpe-d, mamba3), or else the one that
    docs/choosing.md recommends: elu+1, plain and spread, as in ``LrpeConfig``.

    Args:
        width: size of the input and output vectors.
        heads: number of query heads.
        encoding: a name, an EncodingConfig or an encoding; "none" for no encoding. Random parameters are drawn from
            its seed, or without one from torch's global generator, so that layers differ.
        key_heads: number of key and value heads, a divisor of ``heads``; ``heads`` if None.
        head_dim: size of queries and keys per head; width / heads if None.
        value_dim: size of values per head; head_dim if None.
        feature_map: φ, a name or any callable.
        normalizer: "plain", "encoded", "clamped", "output", "output-rms", "output-head", "output-rms-head", or a
            Normalizer.
        summation: "causal", "bidirectional", or a Summation.
        decay: "spread" (see ``spread_decay``), "tnl" (see ``tnl_decay``), "learned" (one r per head, which starts at
            the spread one), "gated" (one r per head and token), "retnet" (see ``retnet_decay``), "mamba3" (per token,
            by the Δ of encoding="mamba3"), one r per key head, a Decay, or None. It must be None for an encoding with
            its own decay, for one on a grid, and for cross-attention.
        bias: whether the projections have biases.
        qkv_bias: the same for the projections to queries, keys and values; ``bias`` if None.
        output_gate: "sigmoid" or "silu", multiplies the joined heads by that function of a projection of x; or None.
        convolution: kernel size of a short convolution along the tokens on q, k and v (see ``ShortConvolution``; 4 is
            usual), or None. It is causal if the summation is, else centred, and refused on a grid.
        convolution_activation: "silu", applied after the convolution, or None.
        dropout: dropout rate of the output.

    >>> attention = LinearAttention(64, heads=4)
    >>> x = torch.randn(2, 10, 64)
    >>> with torch.inference_mode():
    ...     y, state = attention.prefill(x[:, :9])
    ...     last, state = attention.step(x[:, 9], state)
    >>> torch.allclose(last, attention(x)[:, 9], atol=1e-5)
    True
    """

    normalizer: Normalizer = registered("_modules")

    def __init__(
        self,
        width: int,
        heads: int,
        encoding: EncodingChoice = DEFAULT_ENCODING,
        key_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        *,
        feature_map: str | FeatureMap = "default",
        normalizer: str | Normalizer = "default",
        summation: str | Summation = "causal",
        decay: DecayChoice = "default",
        bias: bool = True,
        qkv_bias: bool | None = None,
        output_gate: str | None = None,
        convolution: int | None = None,
        convolution_activation: str | None = None,
        dropout: float = 0.0,
    ):
        sizes = Heads.of(width, heads, key_heads, head_dim, value_dim)
        super().__init__(sizes, bias, qkv_bias, dropout)
        feature_map, normalizer, decay = complete(encoding, feature_map, normalizer, decay)
        self.phi = choose_feature_map(feature_map, sizes.head_dim)
        width = feature_width(self.phi, sizes.head_dim)
        if not isinstance(encoding, PositionalEncoding):
            encoding = configure_features(encoding, self.phi, sizes.head_dim, sizes.key_heads)
        dim = sizes.head_dim if encoding.acts == "before" else width
        self.encoding = choose_encoding(encoding, dim, sizes.key_heads)
        self.normalizer = choose_normalizer(normalizer, sizes.heads, sizes.value_dim)
        self.summation = choose_summation(summation)
        self.choose_order(decay)
        self.choose_extras(output_gate, convolution, convolution_activation)
        self.state_widths = self.find_state_widths()

    def check_state(self, state: Any, x: Tensor) -> None:
        check_decoding_state(state)

    def weigh(
        self, q: Tensor, k: Tensor, v: Tensor, order: Order[DecodingState], wants_state: bool
    ) -> tuple[Tensor, DecodingState | None]:
        choices = Choices(self.encoding, self.phi, self.normalizer, self.summation)
        return sum_and_normalize(q, k, v, choices, order, wants_state)

    def initial_state(self, batch: int) -> DecodingState:
        """Return the state before the first token: zeros, at position 0."""
        check_count("batch", batch, least=0)
        like = self.o_proj.weight
        f, delta = self.state_widths
        dtype = compute_dtype(like.dtype)
        S = torch.zeros(batch, self.sizes.key_heads, f, self.sizes.value_dim, dtype=dtype, device=like.device)
        z = torch.zeros(batch, self.sizes.key_heads, delta, dtype=dtype, device=like.device)
        phase = None if self.steps is None else self.steps.zero_phase(batch)
        window = None if self.convolution is None else self.convolution.empty_window(batch)
        return DecodingState(S, z, torch.zeros(batch, dtype=torch.long, device=like.device), phase, window)

    def find_state_widths(self) -> tuple[int, int]:
        """Return the widths of the features that S and z are sums of."""
        head_dim, after = self.sizes.head_dim, self.encoding.acts == "after"
        encoded = self.encoding.feature_dim if after else feature_width(self.phi, self.encoding.feature_dim)
        features = Features(lambda: torch.empty(feature_width(self.phi, head_dim)), lambda _: torch.empty(encoded))
        summed = self.normalizer.delta_features(features)
        return encoded, 0 if summed is None else summed.shape[-1]
