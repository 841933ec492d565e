"""The linear attention layer, over whole sequences or token by token with a state of fixed size."""

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

    Encoding, feature map, normaliser, summation and decay are independent choices. Their defaults are
    the ones that docs/choosing.md recommends, and equal those of ``LrpeConfig``.

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
        decay: "spread" (see ``spread_decay``), one r per key head, or None. It must be None for an encoding with
            its own decay, for one on a grid, and for cross-attention.
        bias: whether the projections have biases.
        qkv_bias: the same for the projections to queries, keys and values; ``bias`` if None.
        dropout: dropout rate of the output.

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
        """Attend from x (batch, n, width) to itself, or to a ``context`` (batch, m, width); return (batch, n, width).

        Args:
            x: the tokens' vectors.
            context: other tokens, all of which are seen; needs a bidirectional sum without a decay.
            positions: integers (n,) or (batch, n); (n, axes) or (batch, n, axes) on a grid. By default the real tokens
                of each sequence are counted from 0. Positions must not fall within a sequence if attention is causal
                or has a decay, and they do not separate packed sequences.
            mask: (batch, n), True (or 1) for real tokens. Values at padding, even NaN, have no effect.
            sequences: an integer per token, (n,) or (batch, n), that changes where another packed sequence begins.
            cu_seqlens: the boundaries of packed sequences in one row, (sequences + 1,), instead of ``sequences``.
            context_positions, context_mask: the same for the context.
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
        """Attend causally, continuing a state if given; return the output and the state, or one per packed sequence.

        The arguments are those of ``forward``. In a loop use ``torch.inference_mode()``: otherwise each state keeps
        the autograd graph of all earlier tokens.
        """
        require(
            self.summation.causal,
            'Only a causal sum has a state; this layer sums both ways. Build it with summation="causal".',
        )
        self.check_inputs(x, x)
        if state is not None:
            check_decoding_state(state)
        tokens = read_tokens(x, self.encoding.axes, positions, mask, None, cu_seqlens, state, self.decays, causal=True)
        out, after = self.attend(x, x, tokens, tokens, state)
        assert after is not None
        return out, after

    def step(self, x: Tensor, state: DecodingState, mask: Tensor | None = None) -> tuple[Tensor, DecodingState]:
        """Attend with one token per row, (batch, width) -> (batch, width). A masked row leaves its state unchanged."""
        check_decoding_state(state)
        check_tensor("x", x)
        require(x.ndim == 2, lambda: f"x must be one token per row, (batch, width); got {tuple(x.shape)}. See prefill.")
        out, state = self.prefill(x[:, None], state, mask=read_step_mask(mask))
        return out[:, 0], state

    def initial_state(self, batch: int) -> DecodingState:
        """Return the state before the first token: zeros, at position 0."""
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
        """Return the widths of the features that S and z are sums of."""
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
        """Attend with checked tokens; return the output, and the state after them if it is wanted and causal."""
        q, k, v = self.project(*zero_both_paddings(x, context, tokens.mask, context_tokens.mask))
        choices = (self.encoding, self.phi, self.normalizer, self.summation, self.decay.r)
        out, after = sum_and_normalize(q, k, v, *choices, tokens, context_tokens, state, wants_state)
        return self.join(out), after
