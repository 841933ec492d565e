"""The linear attention layer: whole sequences, or token by token from a state of fixed size."""

import torch
from torch import Tensor

from lrpe.arguments import check_count, check_tensor
from lrpe.attention.decay import Decay, DecayChoice
from lrpe.attention.feature_map import FeatureMap, choose_feature_map, feature_width
from lrpe.attention.inputs import read_step_mask
from lrpe.attention.layer import (
    RECOMMENDED,
    AttentionLayer,
    EncodingChoice,
    Heads,
    choose_encoding,
    configure_features,
    zero_both_paddings,
)
from lrpe.attention.linear_sum import sum_and_normalize
from lrpe.attention.normalizer import Normalizer, choose_normalizer
from lrpe.attention.state import DecodingState, check_decoding_state
from lrpe.attention.summation import Summation, choose_summation
from lrpe.attention.tokens import Tokens, read_sides, read_tokens
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.errors import require
from lrpe.precision import compute_dtype


class LinearAttention(AttentionLayer):
    """o_t = N(Σ_s w_ts (M_t φ(q_t))·(M_s φ(k_s)) v_s).

    Encoding, feature map, normaliser, summation and decay are independent choices. Their defaults are what
    docs/choosing.md recommends, and those of ``LrpeConfig``.

    Args:
        width: of the input and the output.
        heads: of the queries.
        encoding: a name, an EncodingConfig or an encoding; "none" for none. What it draws at random comes from its
            seed, or else from torch's global generator, so that every layer has its own.
        key_heads: heads of keys and values, a divisor of ``heads``; as many as ``heads`` if None.
        head_dim: of queries and keys; width / heads if None.
        value_dim: of values; head_dim if None.
        feature_map: φ, by name or any callable.
        normalizer: "plain", "encoded", "clamped", "output", "output-rms", "output-head", "output-rms-head", or a
            Normalizer.
        summation: "causal", "bidirectional", or a Summation.
        decay: "spread" (see ``spread_decay``), one r per key head, or None. It is None for an encoding that brings its
            own, for one on a grid and for cross-attention.
        bias: of the projections.
        qkv_bias: of those to queries, keys and values; as ``bias`` if None.
        dropout: of the output.

    >>> attention = LinearAttention(64, heads=4)
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
        encoding: EncodingChoice = RECOMMENDED.encoding,
        key_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        feature_map: str | FeatureMap = RECOMMENDED.feature_map,
        normalizer: str | Normalizer = RECOMMENDED.normalizer,
        summation: str | Summation = "causal",
        decay: DecayChoice = RECOMMENDED.decay,
        bias: bool = True,
        qkv_bias: bool | None = None,
        dropout: float = 0.0,
    ):
        sizes = Heads.of(width, heads, key_heads, head_dim, value_dim)
        super().__init__(sizes, bias, qkv_bias, dropout)
        self.phi = choose_feature_map(feature_map, sizes.head_dim)
        width = feature_width(self.phi, sizes.head_dim)
        if not isinstance(encoding, PositionalEncoding):
            encoding = configure_features(encoding, self.phi, sizes.head_dim, sizes.key_heads)
        self.encoding = choose_encoding(
            encoding, sizes.head_dim if encoding.acts == "before" else width, sizes.key_heads
        )
        self.normalizer = choose_normalizer(normalizer, sizes.heads, sizes.value_dim)
        self.summation = choose_summation(summation)
        self.decay = Decay(decay, self.encoding, sizes.key_heads)
        self.state_widths = self.find_state_widths()

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
        """Attention of x (batch, n, width) to itself, or to a ``context`` (batch, m, width); (batch, n, width).

        Args:
            x: the tokens.
            context: other tokens to attend to, all of them, by a bidirectional sum without a decay.
            positions: integers (n,) or (batch, n); (n, axes) or (batch, n, axes) on a grid. If they are not given, real
                tokens are counted from 0 in each sequence, and padding is not. They never fall within a sequence where
                attention is causal or decays, and they do not separate packed sequences.
            mask: (batch, n), True (or 1) for real tokens. What stands at padding, NaN too, enters nothing.
            sequences: a number per token, (n,) or (batch, n), that changes where another packed sequence begins.
            cu_seqlens: the boundaries of packed sequences in one row, (sequences + 1,), in place of ``sequences``.
            context_positions, context_mask: of the context.
        """
        self.check_inputs(x, x if context is None else context)
        told = (positions, mask, sequences, cu_seqlens, context_positions, context_mask)
        axes, causal = self.encoding.axes, self.summation.causal
        tokens, key_tokens = read_sides(x, context, axes, *told, decays=self.decays, causal=causal)
        return self.attend(x, x if context is None else context, tokens, key_tokens, wants_state=False)[0]

    def prefill(
        self,
        x: Tensor,
        state: DecodingState | None = None,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
    ) -> tuple[Tensor, DecodingState]:
        """The causal pass over x, from a state if one is given, and the state after it, or one per packed sequence.

        The arguments are those of ``forward``. In a loop use ``torch.inference_mode()``: else each state keeps the
        graph of all that came before it.
        """
        require(self.summation.causal, "Only a causal attention has a state; this one's summation is bidirectional.")
        self.check_inputs(x, x)
        if state is not None:
            check_decoding_state(state)
        tokens = read_tokens(x, self.encoding.axes, positions, mask, None, cu_seqlens, state, self.decays, causal=True)
        out, after = self.attend(x, x, tokens, tokens, state)
        assert after is not None
        return out, after

    def step(self, x: Tensor, state: DecodingState, mask: Tensor | None = None) -> tuple[Tensor, DecodingState]:
        """One token per row, (batch, width) -> (batch, width), and the state after it. A masked row stays as it is."""
        check_decoding_state(state)
        check_tensor("x", x)
        require(
            x.ndim == 2, lambda: f"A step takes one token per row, (batch, width); got {tuple(x.shape)}. See prefill."
        )
        out, state = self.prefill(x[:, None], state, mask=read_step_mask(mask))
        return out[:, 0], state

    def initial_state(self, batch: int) -> DecodingState:
        """The state of no token: zeros, at position 0."""
        check_count("batch", batch, least=0)
        like = self.o_proj.weight
        f, delta = self.state_widths
        dtype = compute_dtype(like.dtype)
        S = torch.zeros(batch, self.sizes.key_heads, f, self.sizes.value_dim, dtype=dtype, device=like.device)
        z = torch.zeros(batch, self.sizes.key_heads, delta, dtype=dtype, device=like.device)
        return DecodingState(S, z, torch.zeros(batch, dtype=torch.long, device=like.device))

    @property
    def decays(self) -> bool:
        return self.decay.r is not None

    def find_state_widths(self) -> tuple[int, int]:
        """The widths of the features that S and z are summed from."""
        plain = feature_width(self.phi, self.sizes.head_dim)
        after = self.encoding.acts == "after"
        encoded = self.encoding.feature_dim if after else feature_width(self.phi, self.encoding.feature_dim)
        return encoded, {"encoded": encoded, "plain": plain, "none": 0}[self.normalizer.delta]

    def attend(
        self,
        x: Tensor,
        context: Tensor,
        tokens: Tokens,
        context_tokens: Tokens,
        state: DecodingState | None = None,
        wants_state: bool = True,
    ) -> tuple[Tensor, DecodingState | None]:
        """Attention of tokens that were read; and if it is causal and wanted, the state after them."""
        q, k, v = self.project(*zero_both_paddings(x, context, tokens.mask, context_tokens.mask))
        choices = (self.encoding, self.phi, self.normalizer, self.summation, self.decay.r)
        out, after = sum_and_normalize(q, k, v, *choices, tokens, context_tokens, state, wants_state)
        return self.join(out), after
