"""The softmax attention layer, with the encodings of linear attention or with scores in canonical form."""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lrpe.attention.choices import DEFAULT_ENCODING, EncodingChoice, Summation, choose_encoding, choose_summation
from lrpe.attention.decay import DecayChoice
from lrpe.attention.description import Order, check_cross_attention, last_phase, make_tables, phases_of
from lrpe.attention.layer import AttentionLayer, Heads
from lrpe.attention.softmax_decay import decay_by_key, decayed_sum, head_bias, pad_width, token_bias
from lrpe.attention.state import KeyValues, KeyValueState, ReservedState, check_key_values, check_state_decay
from lrpe.attention.tokens import Tokens, positions_of
from lrpe.encodings.stochastic import StochasticEncoding
from lrpe.errors import LrpeError, check_count, check_rate, is_number, require
from lrpe.precision import compute_dtype, in_float64
from lrpe.theory.canonical import CanonicalForm
from lrpe.theory.instances import FamilyForm


class SoftmaxAttention(AttentionLayer[KeyValues]):
    """o_t = Σ_s softmax_s(score_ts / √head_dim + |t-s| ln r) v_s; with a gated decay, the Forgetting Transformer's.

    A score is (M_t q_t)·(M_s k_s), or that of a canonical form. There is no φ: PER and SPE act on q and k directly.
    Scores are divided by √head_dim; where a form's paper differs, pass ``scale``: 1 for T5, which does not divide, or
    (3·head_dim)^-½ for DeBERTa. SPE's scores are divided by √realizations, as its features require.

    Args:
        width: size of the input and output vectors.
        heads: number of query heads.
        encoding: a name, an EncodingConfig, an encoding, or a CanonicalForm that all heads share.
        key_heads: number of key and value heads, a divisor of ``heads``; ``heads`` if None.
        head_dim: size of queries and keys per head; width / heads if None.
        value_dim: size of values per head; head_dim if None.
        summation: "causal" or "bidirectional".
        decay: as in ``LinearAttention``, or None, the default: a softmax can ignore distant keys without one, and a
            decay may need an n × n bias; on a CPU a causal one needs none, unless it is very strong. Its second
            derivatives need torch's math kernel then, as without a decay:
            ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)``. An encoding may have its own.
        bias: whether the projections have biases.
        qkv_bias: the same for the projections to queries, keys and values; ``bias`` if None.
        output_gate: "sigmoid" or "silu", multiplies the joined heads by that function of a projection of x; or None.
        convolution: kernel size of a short convolution along the tokens on q, k and v (see ``ShortConvolution``; 4 is
            usual), or None. It is causal if the summation is, else centred, and refused on a grid.
        convolution_activation: "silu", applied after the convolution, or None.
        dropout: dropout rate of the output.
        attention_dropout: dropout rate of the weights after the softmax.
        scale: replaces 1/√head_dim; the encoding's ``score_scale`` multiplies either.

    >>> attention = SoftmaxAttention(64, heads=4, encoding="type2")
    >>> x = torch.randn(2, 10, 64)
    >>> with torch.inference_mode():
    ...     y, state = attention.prefill(x[:, :9])
    ...     last, state = attention.step(x[:, 9], state)
    >>> torch.allclose(last, attention(x)[:, 9], atol=1e-5)
    True
    """

    def __init__(
        self,
        width: int,
        heads: int,
        encoding: EncodingChoice | CanonicalForm = DEFAULT_ENCODING,
        key_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        *,
        summation: str | Summation = "causal",
        decay: DecayChoice = None,
        bias: bool = True,
        qkv_bias: bool | None = None,
        output_gate: str | None = None,
        convolution: int | None = None,
        convolution_activation: str | None = None,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        scale: float | None = None,
    ):
        sizes = Heads.of(width, heads, key_heads, head_dim, value_dim)
        super().__init__(sizes, bias, qkv_bias, dropout)
        check_rate("attention_dropout", attention_dropout)
        require(
            scale is None or (is_number(scale) and abs(scale) < math.inf),
            lambda: f"scale must be a finite number or None; got scale={scale!r}.",
        )
        self.form = encoding if isinstance(encoding, CanonicalForm) else None
        require(
            self.form is None or self.form.head_dim == sizes.head_dim,
            f"encoding must be a form of queries and keys of size {sizes.head_dim} here; got "
            f"head_dim={self.form and self.form.head_dim}.",
        )
        named = "none" if isinstance(encoding, CanonicalForm) else encoding
        self.encoding = choose_encoding(named, sizes.head_dim, sizes.key_heads)
        self.summation, self.attention_dropout = choose_summation(summation), attention_dropout
        self.choose_order(decay)
        self.choose_extras(output_gate, convolution, convolution_activation)
        self.scale = self.own_scale() if scale is None else scale
        self.scale *= (self.form.encoding if isinstance(self.form, FamilyForm) else self.encoding).score_scale

    @property
    def counts(self) -> bool:
        """Return whether the steps from token to token matter; a decay per head counts positions, in any order."""
        return self.steps is not None or self.gated

    @property
    def gated(self) -> bool:
        """Return whether the decay depends on the token."""
        return self.decay is not None and self.decay.per_token

    def own_scale(self) -> float:
        spe = isinstance(self.encoding, StochasticEncoding)  # E[q̂·k̂] has a factor √(realizations / head_dim)
        return (self.encoding.feature_dim if spe else self.sizes.head_dim) ** -0.5

    def initial_state(self, batch: int) -> KeyValueState:
        """Return the state before the first token."""
        check_count("batch", batch, least=0)
        like, rows = self.o_proj.weight, (batch, self.sizes.key_heads, 0)
        return KeyValueState(
            like.new_zeros(*rows, self.encoding.feature_dim),
            like.new_zeros(*rows, self.sizes.value_dim),
            like.new_zeros(batch, 0, dtype=torch.long),
            None,
            in_float64(like.new_zeros(*rows)) if self.gated else None,
            None if self.steps is None else self.steps.zero_phase(batch),
            None if self.convolution is None else self.convolution.empty_window(batch),
        )

    def reserve(self, batch: int, room: int) -> ReservedState:
        """Return the state before the first token, with memory for ``room`` tokens that are written in place."""
        check_count("room", room, least=0)
        return ReservedState(self.initial_state(batch), room)

    def check_state(self, state: Any, x: Tensor) -> None:
        if not isinstance(state, KeyValues):
            raise LrpeError(f"state must be a KeyValueState or a ReservedState; got {type(state).__name__}.")
        check_key_values(state, x)
        rows = (x.shape[0], self.sizes.key_heads, state.positions.shape[1])
        expected = [(*rows, self.encoding.feature_dim), (*rows, self.sizes.value_dim), (rows[0], rows[2])]
        found = [tuple(tensor.shape) for tensor in (state.keys, state.values, state.positions)]
        require(found == expected, lambda: f"state of {rows[2]} tokens must have the shapes {expected}; got {found}.")
        check_state_decay(state.log_decay, rows if self.gated else None)

    def weigh(
        self, q: Tensor, k: Tensor, v: Tensor, order: Order[KeyValues], wants_state: bool
    ) -> tuple[Tensor, KeyValues | None]:
        """Return the sums and, if causal, the state, wanted or not: it costs nothing."""
        check_cross_attention(self.causal, order)
        require(
            order.tokens.part is None,
            "lrpe.parallel.context spreads linear attention, whose state has a fixed size. Softmax attention must send "
            "all keys and values, by another algorithm: torch.distributed.tensor.experimental.context_parallel. Use "
            "linear layers only.",
        )
        require(
            not wants_state or order.tokens.bounds is None,
            "cu_seqlens must be None in prefill of a softmax layer, whose state holds the tokens of one sequence per "
            "row. Pass the sequences as rows of a padded batch, with a mask.",
        )
        state = order.state
        phase = phases_of(order, k)
        table, key_table = make_tables(self.encoding, order, phase, q, k)
        q, k = self.encoding.query(q, table), self.encoding.key(k, key_table)
        c = self.summed_decay(order)
        if not self.causal:
            return self.sum(q, KeyValueState(k, v, positions_of(order.keys, k), None, c), order, order.keys), None
        new = self.state_of(k, v, order.tokens, c, phase)
        if state is None:
            return self.sum(q, new, order, order.tokens), new
        self.check_state(state, q)
        require(
            state.keys.dtype == k.dtype and state.values.dtype == v.dtype,
            lambda: f"state must have the dtype of the layer's keys, {k.dtype}; got {state.keys.dtype}.",
        )
        after = state.extend(new)
        return self.sum(q, after, order, Tokens(after.positions, after.mask, None)), after

    def state_of(self, k: Tensor, v: Tensor, tokens: Tokens, c: Tensor | None, phase: Tensor | None) -> KeyValueState:
        """Return the state of these tokens alone."""
        positions, (batch, heads) = positions_of(tokens, k), k.shape[:2]
        phase = None if phase is None else last_phase(phase, batch, heads)
        return KeyValueState(k, v, positions.expand(batch, *positions.shape[1:]), tokens.mask, c, phase)

    def summed_decay(self, order: Order[KeyValues]) -> Tensor | None:
        """Return Σ of log r up to each new token, (batch, key heads, n), if r depends on the token."""
        if order.log_decay is None or not self.gated:
            return None
        distances, c = order.tokens.distances(), in_float64(order.log_decay)
        c = (c if distances is None else c * distances[:, None].to(c.device)).cumsum(-1)
        before = None if order.state is None else order.state.log_decay
        return c if before is None or before.shape[-1] == 0 else c + before[..., -1:]

    def sum(self, q: Tensor, seen: KeyValues, order: Order[KeyValues], keys: Tokens) -> Tensor:
        """Return the weighted sums of values for encoded queries and keys; (batch, heads, n, value_dim)."""
        k, v, visibility = seen.keys, seen.values, _Visibility(self.causal, order.tokens, keys)
        dropout = self.attention_dropout if self.training else 0.0
        ordered = self.form is None and visibility.ordered
        if ordered and (by_key := decay_by_key(q, seen, order)) is not None:
            return decayed_sum(q * self.scale, k, v, *by_key, dropout)
        fade = None
        if seen.log_decay is not None:
            fade = token_bias(seen.log_decay, q)
        elif order.log_decay is not None:
            fade = head_bias(order.log_decay, positions_of(order.tokens, q), positions_of(keys, k), q)
        if self.form is None:
            return _product_sum(q, k, v, self.scale, visibility, bias=fade, dropout=dropout)
        scores = self.form.scores(q, _repeat_for_queries(k, q), order.tokens.positions, keys.positions) * self.scale
        return _score_sum(scores if fade is None else scores + fade, v, visibility, dropout)


class _Visibility(NamedTuple):
    """Which keys a query sees: the real ones of its own sequence, and if causal, no later ones."""

    causal: bool
    tokens: Tokens  # of the queries; if causal, the last tokens of ``keys``
    keys: Tokens

    @property
    def same_tokens(self) -> bool:
        """Whether queries and keys are of the same tokens, by identity: sizes may be symbolic in an export."""
        return self.tokens is self.keys

    @property
    def unmasked(self) -> bool:
        """Whether no key is hidden by padding or by packing."""
        return self.keys.mask is None and self.tokens.sequences is None

    @property
    def ordered(self) -> bool:
        """Whether every row is one causal sequence at positions 0, 1, ..., so that its decay is e^(c_t - c_s)."""
        return self.causal and self.same_tokens and self.unmasked and self.tokens.positions is None

    def matrix(self, n: int, m: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return where a query sees a key, (batch or 1, 1, n, m), and where it sees none, (batch or 1, 1, n, 1).

        A query without keys is shown all of them to keep its softmax and gradient finite; callers zero its output.
        """
        seen = torch.ones(1, 1, n, m, dtype=torch.bool, device=device)
        if self.causal:
            seen = seen.tril(m - n)
        if self.keys.mask is not None:
            seen = seen & self.keys.mask[:, None, None, :]
        if self.tokens.sequences is not None:
            own = self.tokens.sequences
            seen = seen & (own[:, None, :, None] == own[:, None, None, :])
        none = ~seen.any(-1, keepdim=True)
        return seen | none, none


def _product_sum(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    visibility: _Visibility,
    *,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Return softmax(scale q·k + bias) v for q (batch, heads, n, f), k and v (batch, key heads, m, f or e)."""
    n, m, width = q.shape[2], k.shape[2], v.shape[-1]
    if scale < 1e-6:  # torch's kernels multiply the -inf of a hidden key by the scale, or divide by it
        q, scale = q * scale, 1.0
    if visibility.same_tokens or n > 1:  # torch's fused kernels need one width; zeros change nothing
        q, k, v = (pad_width(x, max(q.shape[-1], width)) for x in (q, k, v))
    attend = partial(
        F.scaled_dot_product_attention, scale=scale, dropout_p=dropout, enable_gqa=q.shape[1] != k.shape[1]
    )
    if visibility.unmasked and bias is None and (visibility.same_tokens or not visibility.causal or n == 1):
        # A single causal query after a state is the last token, which sees every key: is_causal would hide them.
        return attend(q, k, v, is_causal=visibility.causal and visibility.same_tokens)[..., :width]
    seen, none = visibility.matrix(n, m, q.device)
    mask = seen if bias is None else bias.masked_fill(~seen, -math.inf)
    return attend(q, k, v, mask)[..., :width].masked_fill(none, 0)


def _score_sum(scores: Tensor, v: Tensor, visibility: _Visibility, dropout: float = 0.0) -> Tensor:
    """Return softmax(scores) v for given scores (batch, heads, n, m)."""
    seen, none = visibility.matrix(scores.shape[2], scores.shape[3], scores.device)
    weights = scores.to(compute_dtype(scores.dtype)).masked_fill(~seen, -math.inf).softmax(-1)
    return (F.dropout(weights, dropout).to(v.dtype) @ _repeat_for_queries(v, scores)).masked_fill(none, 0)


def _repeat_for_queries(x: Tensor, queries: Tensor) -> Tensor:
    """Repeat keys or values for the query heads: query head h uses key head h // group."""
    return x.repeat_interleave(queries.shape[1] // x.shape[1], 1)
