"""The softmax attention layer, with the encodings of linear attention or with scores in canonical form."""

import math

import torch
from torch import Tensor

from lrpe.arguments import check_count, check_rate, check_tensor, is_number
from lrpe.attention.decay import Decay, DecayChoice
from lrpe.attention.features import make_tables
from lrpe.attention.inputs import check_cross_attention, read_step_mask
from lrpe.attention.key_values import KeyValues, KeyValueState, ReservedState, check_key_values, state_of
from lrpe.attention.layer import RECOMMENDED, AttentionLayer, EncodingChoice, Heads, choose_encoding, zero_both_paddings
from lrpe.attention.softmax_sum import Visibility, decay_bias, product_sum, repeat_for_queries, score_sum
from lrpe.attention.summation import Summation, choose_summation
from lrpe.attention.tokens import Tokens, positions_of, read_sides, read_tokens
from lrpe.encodings.stochastic import StochasticEncoding
from lrpe.errors import LrpeError, require
from lrpe.theory.canonical import CanonicalForm
from lrpe.theory.instances import FamilyForm


class SoftmaxAttention(AttentionLayer):
    """o_t = Σ_s softmax_s(score_ts / √head_dim + |t-s| ln r) v_s.

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
        decay: "spread" (see ``spread_decay``), one r per key head, or None, the default: a softmax can ignore
            distant keys without one, and a decay needs an n × n bias. An encoding may have its own.
        bias: whether the projections have biases.
        qkv_bias: the same for the projections to queries, keys and values; ``bias`` if None.
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
        encoding: EncodingChoice | CanonicalForm = RECOMMENDED.encoding,
        key_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        summation: str | Summation = "causal",
        decay: DecayChoice = None,
        bias: bool = True,
        qkv_bias: bool | None = None,
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
        self.decay = Decay(decay, self.encoding, sizes.key_heads)
        self.causal, self.attention_dropout = choose_summation(summation).causal, attention_dropout
        self.scale = self.own_scale() if scale is None else scale
        self.scale *= (self.form.encoding if isinstance(self.form, FamilyForm) else self.encoding).score_scale

    def own_scale(self) -> float:
        spe = isinstance(self.encoding, StochasticEncoding)  # E[q̂·k̂] has a factor √(realizations / head_dim)
        return (self.encoding.feature_dim if spe else self.sizes.head_dim) ** -0.5

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        sequences: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        context_positions: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        """Attend from x (batch, n, width) to itself, or to a ``context`` (batch, m, width); return (batch, n, width).

        The arguments are those of ``LinearAttention.forward``.
        """
        self.check_inputs(x, x if context is None else context)
        told = (positions, mask, sequences, cu_seqlens, context_positions, context_mask)
        tokens, key_tokens = read_sides(x, context, self.encoding.axes, *told, causal=self.causal)
        if context is None:
            return self.attend(x, x, tokens, tokens)[0]
        check_cross_attention(self.causal, self.decay.r)
        return self.attend(x, context, tokens, key_tokens)[0]

    def prefill(
        self,
        x: Tensor,
        state: KeyValues | None = None,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, KeyValues]:
        """Attend causally, continuing a state if given; return the output and the state after it."""
        require(
            self.causal, 'Only a causal sum has a state; this layer sums both ways. Build it with summation="causal".'
        )
        axes = self.encoding.axes
        require(
            axes == 1, f"A state counts steps along a sequence; this encoding has a grid of {axes} axes. Use forward."
        )
        self.check_inputs(x, x)
        if state is not None:
            self.check_state(state, x)
        tokens = read_tokens(x, axes, positions, mask, state=state, causal=True)
        out, after = self.attend(x, x, tokens, tokens, state)
        assert after is not None
        return out, after

    def step(self, x: Tensor, state: KeyValues, mask: Tensor | None = None) -> tuple[Tensor, KeyValues]:
        """Attend with one token per row, (batch, width) -> (batch, width). A masked row adds padding to the state."""
        require(state is not None, "state must not be None; make one with prefill(x) or initial_state(batch).")
        check_tensor("x", x)
        require(x.ndim == 2, lambda: f"x must be one token per row, (batch, width); got {tuple(x.shape)}.")
        out, state = self.prefill(x[:, None], state, mask=read_step_mask(mask))
        return out[:, 0], state

    def initial_state(self, batch: int) -> KeyValueState:
        """Return the state before the first token."""
        check_count("batch", batch, least=0)
        like, rows = self.o_proj.weight, (batch, self.sizes.key_heads, 0)
        return KeyValueState(
            like.new_zeros(*rows, self.encoding.feature_dim),
            like.new_zeros(*rows, self.sizes.value_dim),
            like.new_zeros(batch, 0, dtype=torch.long),
            None,
        )

    def reserve(self, batch: int, room: int) -> ReservedState:
        """Return the state before the first token, with memory for ``room`` tokens that are written in place."""
        check_count("room", room, least=0)
        return ReservedState(self.initial_state(batch), room)

    def check_state(self, state: KeyValues, x: Tensor) -> None:
        if not isinstance(state, KeyValues):
            raise LrpeError(f"state must be a KeyValueState or a ReservedState; got {type(state).__name__}.")
        check_key_values(state, x)
        rows = (x.shape[0], self.sizes.key_heads, state.positions.shape[1])
        expected = [(*rows, self.encoding.feature_dim), (*rows, self.sizes.value_dim), (rows[0], rows[2])]
        found = [tuple(tensor.shape) for tensor in (state.keys, state.values, state.positions)]
        require(found == expected, lambda: f"state of {rows[2]} tokens must have the shapes {expected}; got {found}.")

    def attend(
        self,
        x: Tensor,
        context: Tensor,
        tokens: Tokens,
        context_tokens: Tokens,
        state: KeyValues | None = None,
        wants_state: bool = True,
    ) -> tuple[Tensor, KeyValues | None]:
        """Attend with checked tokens; return the output, and if causal the state, wanted or not: it costs nothing."""
        if state is not None:
            self.check_state(state, x)
        q, k, v = self.project(*zero_both_paddings(x, context, tokens.mask, context_tokens.mask))
        table, key_table = make_tables(self.encoding, tokens, context_tokens, q, k)
        q, k = self.encoding.query(q, table), self.encoding.key(k, key_table)
        require(
            state is None or (state.keys.dtype == k.dtype and state.values.dtype == v.dtype),
            lambda: f"state must have the dtype of the layer's keys, {k.dtype}; got {state and state.keys.dtype}.",
        )
        if not self.causal:
            return self.join(self.weigh(q, k, v, tokens, context_tokens)), None
        after = state_of(k, v, tokens) if state is None else state.extend(state_of(k, v, tokens))
        keys = tokens if state is None else Tokens(after.positions, after.mask, None)
        return self.join(self.weigh(q, after.keys, after.values, tokens, keys)), after

    def weigh(self, q: Tensor, k: Tensor, v: Tensor, tokens: Tokens, keys: Tokens) -> Tensor:
        """Return the weighted sums of values for encoded queries and keys; (batch, heads, n, value_dim)."""
        visibility = Visibility(self.causal, tokens, keys)
        dropout = self.attention_dropout if self.training else 0.0
        fade = None
        if self.decay.r is not None:
            fade = decay_bias(self.decay.r, self.sizes.heads, positions_of(tokens, q), positions_of(keys, k), q.dtype)
        if self.form is None:
            return product_sum(q, k, v, self.scale, visibility, fade, dropout)
        scores = self.form.scores(q, repeat_for_queries(k, q), tokens.positions, keys.positions) * self.scale
        return score_sum(scores if fade is None else scores + fade, v, visibility, dropout)
