"""The linear attention layer, over whole sequences or token by token with a state of fixed size."""

from typing import Any

import torch
from torch import Tensor

from lrpe.arguments import check_count
from lrpe.attention.decay import DecayChoice
from lrpe.attention.feature_map import FeatureMap, choose_feature_map, feature_width
from lrpe.attention.layer import (
    RECOMMENDED,
    AttentionLayer,
    EncodingChoice,
    Heads,
    choose_encoding,
    configure_features,
)
from lrpe.attention.linear_sum import Choices, sum_and_normalize
from lrpe.attention.normalizer import Features, Normalizer, choose_normalizer
from lrpe.attention.order import Order
from lrpe.attention.state import DecodingState, check_decoding_state
from lrpe.attention.summation import Summation, choose_summation
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.precision import compute_dtype


class LinearAttention(AttentionLayer[DecodingState]):
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
        decay: "spread" (see ``spread_decay``), "tnl" (see ``tnl_decay``), "learned" (one r per head, which starts at
            the spread one), "gated" (one r per head and token), one r per key head, a Decay, or None. It must be None
            for an encoding with its own decay, for one on a grid, and for cross-attention.
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

    def __init__(
        self,
        width: int,
        heads: int,
        encoding: EncodingChoice = RECOMMENDED.encoding,
        key_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        *,
        feature_map: str | FeatureMap = RECOMMENDED.feature_map,
        normalizer: str | Normalizer = RECOMMENDED.normalizer,
        summation: str | Summation = "causal",
        decay: DecayChoice = RECOMMENDED.decay,
        bias: bool = True,
        qkv_bias: bool | None = None,
        output_gate: str | None = None,
        convolution: int | None = None,
        convolution_activation: str | None = None,
        dropout: float = 0.0,
    ):
        sizes = Heads.of(width, heads, key_heads, head_dim, value_dim)
        super().__init__(sizes, bias, qkv_bias, dropout)
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
        features = Features(lambda: torch.empty(feature_width(self.phi, head_dim)), lambda: torch.empty(encoded))
        summed = self.normalizer.delta_features(features)
        return encoded, 0 if summed is None else summed.shape[-1]
