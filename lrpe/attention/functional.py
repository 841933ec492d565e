"""Linear attention as a function of ready queries, keys and values."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from lrpe.arguments import check_real
from lrpe.attention.decay import DecayChoice, read_decay
from lrpe.attention.feature_map import FeatureMap, choose_feature_map
from lrpe.attention.layer import RECOMMENDED, choose_encoding, configure_features, zero_padding
from lrpe.attention.linear_sum import sum_and_normalize
from lrpe.attention.normalizer import Normalizer, choose_normalizer
from lrpe.attention.state import DecodingState, check_decoding_state
from lrpe.attention.summation import Summation, choose_summation
from lrpe.attention.tokens import read_sides
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.errors import require, unknown_name

_LAYOUTS = ("bhnd", "bnhd")
_ATTENTIONS = ("self", "cross")


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: str | EncodingConfig | PositionalEncoding = RECOMMENDED.encoding,
    feature_map: str | FeatureMap = RECOMMENDED.feature_map,
    normalizer: str | Normalizer = RECOMMENDED.normalizer,
    summation: str | Summation = "causal",
    decay: DecayChoice = RECOMMENDED.decay,
    positions: Tensor | None = None,
    mask: Tensor | None = None,
    sequences: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state: DecodingState | None = None,
    *,
    attention: Literal["self", "cross"] = "self",
    context_positions: Tensor | None = None,
    context_mask: Tensor | None = None,
    layout: Literal["bhnd", "bnhd"] = "bhnd",
    output_final_state: bool = True,
) -> tuple[Tensor, DecodingState | None]:
    """o_t = N(Σ_s w_ts (M_t φ(q_t))·(M_s φ(k_s)) v_s) of q (batch, heads, n, d), k and v (batch, key heads, n, d or e).

    The axes are in this order, heads before tokens. A tensor (batch, n, heads, d) has as many axes, and nothing but a
    mask, positions or a decay of another size tells it apart: say ``layout="bnhd"`` for it.

    Args:
        q, k, v: queries, keys and values; query head h has key head h // (heads / key heads).
        encoding: a name, an EncodingConfig or an encoding. A name builds the encoding with every call, from seed 0 and
            with nothing to learn; to learn its angles, or to save the time, build it once by ``lrpe.encoding``.
        feature_map, normalizer, summation, decay, positions, mask, sequences, cu_seqlens: as in ``LinearAttention``.
        state: to go on from, as an earlier call returned it.
        attention: "self" if k and v are of the same tokens as q; "cross" if they are a context, all of which is seen.
            Cross-attention takes ``summation="bidirectional"`` and ``decay=None``.
        context_positions, context_mask: of the keys and values in cross-attention; positions and mask are the queries'.
        layout: "bhnd", or "bnhd" for q, k, v and the output as (batch, n, heads, d).
        output_final_state: whether the state after the last token is wanted; with ``cu_seqlens`` there is one for each
            sequence, which takes time.

    Returns:
        The output (batch, heads, n, e), and the state if the sum is causal and it is wanted, else None.

    >>> q = k = v = torch.randn(1, 2, 5, 4)
    >>> out, state = linear_attention(q, k, v, decay=[0.9, 0.99])
    >>> out.shape, state.S.shape
    (torch.Size([1, 2, 5, 4]), torch.Size([1, 2, 4, 4]))
    """
    q, k, v = _read_vectors(q, k, v, layout)
    encode, phi, norm = _choose(encoding, feature_map, normalizer, q, k, v)
    told = {} if encode.axes > 1 else {"positions": positions}
    _check_layout(q, k, layout, mask=mask, sequences=sequences, decay=decay, **told)
    chosen, r = choose_summation(summation), read_decay(decay, encode, k.shape[1])
    if state is not None:
        check_decoding_state(state)
        require(chosen.causal, "A bidirectional sum sees every key at once, so it goes on from no state.")
    wanted = isinstance(output_final_state, bool)
    require(wanted, lambda: f"output_final_state is True or False; got {type(output_final_state).__name__}.")
    context = _context_of(q, k, attention)
    sides = (encode.axes, positions, mask, sequences, cu_seqlens, context_positions, context_mask, state)
    tokens, key_tokens = read_sides(q, context, *sides, decays=r is not None, causal=chosen.causal)
    q, k, v = zero_padding(q, tokens.mask), zero_padding(k, key_tokens.mask), zero_padding(v, key_tokens.mask)
    r = None if r is None else r.to(q.device)
    out, after = sum_and_normalize(q, k, v, encode, phi, norm, chosen, r, tokens, key_tokens, state, output_final_state)
    return _swap(out, layout), after


def _swap(x: Tensor, layout: str) -> Tensor:
    """(batch, n, heads, d) <-> (batch, heads, n, d), if that is the layout."""
    return x.transpose(1, 2) if layout == "bnhd" else x


def _read_vectors(q: Any, k: Any, v: Any, layout: str) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v, checked, with heads before tokens."""
    if layout not in _LAYOUTS:
        raise unknown_name("layout", layout, _LAYOUTS)
    check_real("q", q)
    check_real("k", k, q)
    check_real("v", v, q)
    axes = "(batch, heads, n, d)" if layout == "bhnd" else "(batch, n, heads, d)"
    require(
        q.ndim == k.ndim == v.ndim == 4
        and q.shape[0] == k.shape[0]  # not len(q), which an exporter takes for a constant
        and q.shape[3] == k.shape[3]
        and k.shape[:3] == v.shape[:3]
        and q.shape[3] > 0
        and _heads_fit(q, k, layout),
        lambda: (
            f"q, k and v are {axes}: q and k share batch and d, k and v all axes but the last, and the heads of k "
            f"divide those of q; got {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}."
        ),
    )
    require(q.dtype == k.dtype == v.dtype, lambda: f"q, k and v share a dtype; got {q.dtype}, {k.dtype}, {v.dtype}.")
    return _swap(q, layout), _swap(k, layout), _swap(v, layout)


def _heads_fit(q: Tensor, k: Tensor, layout: str) -> bool:
    axis = 1 if layout == "bhnd" else 2
    return k.shape[axis] > 0 and q.shape[axis] > 0 and q.shape[axis] % k.shape[axis] == 0


def _check_layout(q: Tensor, k: Tensor, layout: str, **told: Any) -> None:
    """Refuse what is said of as many tokens as there are heads, or of as many heads as there are tokens."""
    heads, n = q.shape[1], q.shape[2]
    if heads == n or torch.compiler.is_compiling():
        return
    other = next(each for each in _LAYOUTS if each != layout)
    for name, value in told.items():
        size = _last_size(value)
        swapped = size == n != k.shape[1] if name == "decay" else size == heads
        require(
            not swapped,
            lambda name=name, size=size: (
                f"{name} is for {size} {'heads' if name == 'decay' else 'tokens'}, and with layout={layout!r} there "
                f"are {heads} heads and {n} tokens. If the axes are the other way round, pass layout={other!r}."
            ),
        )


def _last_size(value: Any) -> int | None:
    if isinstance(value, Tensor):
        return value.shape[-1] if value.ndim in (1, 2) else None
    return len(value) if isinstance(value, list | tuple) else None


def _choose(
    encoding: Any, feature_map: Any, normalizer: Any, q: Tensor, k: Tensor, v: Tensor
) -> tuple[PositionalEncoding, FeatureMap, Normalizer]:
    """The objects that are chosen; one by name is the same with every call, lives with q and has nothing to learn."""
    names = any(isinstance(choice, str | EncodingConfig) for choice in (encoding, feature_map, normalizer))
    with q.device if names else nullcontext():
        phi = choose_feature_map(feature_map, q.shape[-1])
        norm = choose_normalizer(normalizer, q.shape[1], v.shape[-1])
        if isinstance(normalizer, str):
            norm.requires_grad_(False)
        if isinstance(encoding, PositionalEncoding):
            return encoding, phi, norm
        config = configure_features(encoding, phi, q.shape[-1], k.shape[1])
        seeded = replace(config, seed=0) if config.seed is None else config
        return choose_encoding(seeded, seeded.head_dim, k.shape[1]).requires_grad_(False), phi, norm


def _context_of(q: Tensor, k: Tensor, attention: str) -> Tensor | None:
    """The keys if they are a context, else None."""
    if attention not in _ATTENTIONS:
        raise unknown_name("attention", attention, _ATTENTIONS)
    require(
        attention == "cross" or k.shape[2] == q.shape[2],
        lambda: (
            f"In self-attention every token has a query and a key; got {q.shape[2]} queries and {k.shape[2]} keys. "
            'Pass attention="cross" if the keys are a context, or layout="bnhd" if the axes are (batch, n, heads, d).'
        ),
    )
    return k if attention == "cross" else None
