"""The linear attention layer: whole sequences, or token by token from a state of fixed size."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lrpe.attention.attend import attend
from lrpe.attention.decay import Decay
from lrpe.attention.feature_map import FeatureMap, choose_feature_map, feature_width
from lrpe.attention.layer import AttentionLayer, Heads, choose_encoding
from lrpe.attention.normalizer import Normalizer, choose_normalizer
from lrpe.attention.state import DecodingState, check_kind
from lrpe.attention.summation import Summation, choose_summation
from lrpe.attention.tokens import Tokens, read_tokens
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.encodings.family import configure_for_heads
from lrpe.encodings.precision import compute_dtype
from lrpe.errors import require


class LinearAttention(AttentionLayer):
    """o_t = N(Σ_s w_ts (M_t φ(q_t))·(M_s φ(k_s)) v_s), with three independent choices: encoding, normaliser, summation.

    Args:
        width: of the input and the output.
        heads: of the queries.
        encoding: a name, an EncodingConfig or an encoding.
        key_heads: heads of keys and values, a divisor of ``heads``; as many as ``heads`` if None.
        head_dim: of queries and keys; width / heads if None.
        value_dim: of values; head_dim if None.
        feature_map: φ, by name or any callable.
        normalizer: "plain", "encoded", "output", "output-rms", "output-head", "output-rms-head", or a Normalizer.
        summation: "causal", "bidirectional", or a Summation.
        decay: r, one number a key head, or None; an encoding may bring its own.
        bias: of the projections.
        qkv_bias: of those to queries, keys and values; as ``bias`` if None.
        dropout: of the output.

    >>> attention = LinearAttention(64, heads=4, encoding="type2")
    >>> x = torch.randn(2, 10, 64)
    >>> y, state = attention.prefill(x[:, :9])
    >>> last, state = attention.step(x[:, 9], state)
    >>> torch.allclose(last, attention(x)[:, 9], atol=1e-5)
    True
    """

    def __init__(
        self,
        width: int,
        heads: int,
        encoding: str | EncodingConfig | PositionalEncoding = "none",
        key_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        feature_map: str | FeatureMap = "elu+1",
        normalizer: str | Normalizer = "plain",
        summation: str | Summation = "causal",
        decay: Tensor | Sequence[float] | None = None,
        bias: bool = True,
        qkv_bias: bool | None = None,
        dropout: float = 0.0,
    ):
        sizes = Heads.of(width, heads, key_heads, head_dim, value_dim)
        super().__init__(sizes, bias, qkv_bias, dropout)
        self.phi = choose_feature_map(feature_map, sizes.head_dim)
        if isinstance(encoding, str):
            acts = configure_for_heads(encoding, sizes.head_dim, sizes.key_heads).acts
        else:
            acts = getattr(encoding, "acts", None)
        encoded = sizes.head_dim if acts == "before" else feature_width(self.phi, sizes.head_dim)
        self.encoding = choose_encoding(encoding, encoded, sizes.key_heads)
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

        ``mask`` (batch, n) is True for real tokens. Packed sequences are told by ``cu_seqlens`` (one row) or by a
        number a token, ``sequences``. ``positions`` follow from these unless they are given.
        """
        self.check_inputs(x, x if context is None else context)
        tokens = read_tokens(x, self.encoding.axes, positions, mask, sequences, cu_seqlens, None, self.decays)
        if context is None:
            given = context_positions is not None or context_mask is not None
            require(not given, "context_positions and context_mask speak of a context; none was given.")
            return self.attend(x, x, tokens, tokens)[0]
        require(sequences is None and cu_seqlens is None, "Packed sequences attend to themselves, not to a context.")
        context_tokens = read_tokens(context, self.encoding.axes, context_positions, context_mask)
        return self.attend(x, context, tokens, context_tokens)[0]

    def prefill(
        self,
        x: Tensor,
        state: DecodingState | None = None,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
    ) -> tuple[Tensor, DecodingState]:
        """The causal pass over x, from a state if one is given, and the state after it (one a packed sequence)."""
        require(self.summation.causal, "Only a causal attention has a state; this one's summation is bidirectional.")
        self.check_inputs(x, x)
        if state is not None:
            check_kind(state)
        tokens = read_tokens(x, self.encoding.axes, positions, mask, None, cu_seqlens, state, self.decays)
        out, after = self.attend(x, x, tokens, tokens, state)
        assert after is not None
        return out, after

    def step(self, x: Tensor, state: DecodingState, mask: Tensor | None = None) -> tuple[Tensor, DecodingState]:
        """One token a row, (batch, width) -> (batch, width), and the state after it. A masked row stays as it is."""
        check_kind(state)
        require(
            x.ndim == 2, lambda: f"A step takes one token a row, (batch, width); got {tuple(x.shape)}. See prefill."
        )
        out, state = self.prefill(x[:, None], state, mask=None if mask is None else mask[:, None])
        return out[:, 0], state

    def initial_state(self, batch: int) -> DecodingState:
        """The state of no token: zeros, at position 0."""
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
        self, x: Tensor, context: Tensor, tokens: Tokens, context_tokens: Tokens, state: DecodingState | None = None
    ) -> tuple[Tensor, DecodingState | None]:
        q, k, v = self.project(x, context)
        choices = (self.encoding, self.phi, self.normalizer, self.summation, self.decay.r)
        out, after = attend(q, k, v, *choices, tokens, context_tokens, state)
        return self.join(out), after
