"""Linear attention as a function of ready queries, keys and values."""

from collections.abc import Sequence

from torch import Tensor

from lrpe.attention.attend import attend
from lrpe.attention.decay import read_decay
from lrpe.attention.feature_map import FeatureMap, choose_feature_map
from lrpe.attention.normalizer import Normalizer, choose_normalizer
from lrpe.attention.state import DecodingState, check_kind
from lrpe.attention.summation import Summation, choose_summation
from lrpe.attention.tokens import read_tokens
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.encodings.family import encoding as named_encoding
from lrpe.errors import require


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionalEncoding | None = None,
    feature_map: str | FeatureMap = "elu+1",
    normalizer: str | Normalizer = "plain",
    summation: str | Summation = "causal",
    decay: Tensor | Sequence[float] | None = None,
    positions: Tensor | None = None,
    mask: Tensor | None = None,
    sequences: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state: DecodingState | None = None,
) -> tuple[Tensor, DecodingState | None]:
    """Attention of q (batch, heads, n, d) to k (batch, key heads, n, d) and v (batch, key heads, n, e).

    Returns the output (batch, heads, n, e), and the state after the last token if the sum is causal. The arguments are
    those of ``LinearAttention``; keys of another length than the queries are a context, all of whose keys are seen.

    >>> import torch
    >>> q = k = v = torch.randn(1, 2, 5, 4)
    >>> out, state = linear_attention(q, k, v, decay=[0.9, 0.99])
    >>> out.shape, state.S.shape
    (torch.Size([1, 2, 5, 4]), torch.Size([1, 2, 4, 4]))
    """
    check_shapes(q, k, v)
    encoding = named_encoding("none", q.shape[-1]) if encoding is None else encoding
    phi = choose_feature_map(feature_map, q.shape[-1])
    r = read_decay(decay, encoding, k.shape[1])
    r = None if r is None else r.to(q.device)
    if state is not None:
        check_kind(state)
    choices = (choose_normalizer(normalizer, q.shape[1], v.shape[-1]), choose_summation(summation), r)
    if k.shape[2] == q.shape[2]:
        tokens = read_tokens(q, encoding.axes, positions, mask, sequences, cu_seqlens, state, r is not None)
        return attend(q, k, v, encoding, phi, *choices, tokens, tokens, state)
    require(
        positions is None and sequences is None and cu_seqlens is None and state is None,
        lambda: f"{k.shape[2]} keys for {q.shape[2]} queries are a context, which takes a mask alone.",
    )
    return attend(q, k, v, encoding, phi, *choices, read_tokens(q), read_tokens(k, mask=mask))


def check_shapes(q: Tensor, k: Tensor, v: Tensor) -> None:
    fits = (
        q.ndim == k.ndim == v.ndim == 4
        and q.shape[0] == k.shape[0]  # not len(q), which an exporter takes for a constant
        and q.shape[3] == k.shape[3]
        and k.shape[:3] == v.shape[:3]
    )
    require(
        fits and q.shape[1] % k.shape[1] == 0,
        lambda: (
            "q is (batch, heads, n, d), k (batch, key heads, m, d), v (batch, key heads, m, e), and key heads divide "
            f"heads; got {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}."
        ),
    )
    require(q.device == k.device == v.device, f"q, k and v share a device; got {q.device}, {k.device}, {v.device}.")
