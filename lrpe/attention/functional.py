"""Linear attention as a function of queries, keys and values."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from lrpe.attention.choices import (
    DEFAULT_ENCODING,
    Summation,
    choose_encoding,
    choose_summation,
    complete,
    configure_features,
)
from lrpe.attention.decay import Decay, DecayChoice, bound_log_decay, check_alone, read_decay, read_log_decay
from lrpe.attention.description import Choices, Order
from lrpe.attention.feature_map import FeatureMap, check_feature_dtype, choose_feature_map
from lrpe.attention.inputs import Given
from lrpe.attention.linear import sum_and_normalize
from lrpe.attention.normalizer import Normalizer, choose_normalizer
from lrpe.attention.state import DecodingState, check_decoding_state
from lrpe.attention.steps import read_steps
from lrpe.attention.tokens import read_sides, zero_padding
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.errors import LrpeError, check_real, require, unknown_name
from lrpe.precision import in_float64

_LAYOUTS = ("bhnd", "bnhd")
_ATTENTIONS = ("self", "cross")


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: str | EncodingConfig | PositionalEncoding = DEFAULT_ENCODING,
    feature_map: str | FeatureMap = "default",
    normalizer: str | Normalizer = "default",
    *,
    summation: str | Summation = "causal",
    decay: DecayChoice = "default",
    log_decay: Tensor | None = None,
    steps: Tensor | None = None,
    positions: Tensor | None = None,
    mask: Tensor | None = None,
    sequences: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    state: DecodingState | None = None,
    attention: Literal["self", "cross"] = "self",
    context_positions: Tensor | None = None,
    context_mask: Tensor | None = None,
    layout: Literal["bhnd", "bnhd"] = "bhnd",
    output_final_state: bool = True,
) -> tuple[Tensor, DecodingState | None]:
    """o_t = N(Σ_s w_ts (M_t φ(q_t))·(M_s φ(k_s)) v_s) of q (batch, heads, n, d), k and v (batch, key heads, n, d or e).

    Heads come before tokens. For tensors (batch, n, heads, d) pass ``layout="bnhd"``: they have the same number of
    axes, so a wrong layout is noticed only if a mask, positions or a decay has the wrong size.

    Args:
        q, k, v: queries, keys and values; query head h uses key head h // (heads / key heads).
        encoding: a name, an EncodingConfig or an encoding. A name builds the encoding at every call, from seed 0 and
            without gradients; to train its angles or to save time, build it once with ``lrpe.encoding``.
        feature_map, normalizer, summation, positions, mask, sequences, cu_seqlens: as in ``LinearAttention``.
        decay: "default", "spread", "tnl", "retnet", one r per key head, or None; see ``LinearAttention``.
        log_decay: log r_t ≤ 0 per token, (batch or 1, key heads or 1, n), with a gradient: the weight of key s for
            query t is exp(Σ log r_τ) over s < τ ≤ t. It replaces the "default" ``decay``. A token with -inf forgets
            everything before it.
        steps: u_t per token, (batch or 1, key heads or 1, n), or with a last axis of angles, with a gradient: token t
            turns by u_t·α instead of α. The encoding must be of Type 1 or 2.
        state: the state to continue, as returned by an earlier call.
        attention: "self" if k and v belong to the tokens of q; "cross" if they are a context, all of which is seen.
            Cross-attention needs ``summation="bidirectional"`` and ``decay=None``.
        context_positions, context_mask: for keys and values in cross-attention; positions and mask are for queries.
        layout: "bhnd", or "bnhd" for q, k, v and the output as (batch, n, heads, d).
        output_final_state: whether to return the state after the last token; with ``cu_seqlens`` there is one per
            sequence, which takes time.

    Returns:
        The output (batch, heads, n, e), and the state, or None if it is not wanted or the sum is not causal.

    >>> q = k = v = torch.randn(1, 2, 5, 4)
    >>> out, state = linear_attention(q, k, v, decay=[0.9, 0.99])
    >>> out.shape, state.S.shape
    (torch.Size([1, 2, 5, 4]), torch.Size([1, 2, 4, 4]))
    """
    q, k, v = _read_vectors(q, k, v, layout)
    decay = None if log_decay is not None and isinstance(decay, str) and decay == "default" else decay
    feature_map, normalizer, decay = complete(encoding, feature_map, normalizer, decay)
    choices = _choose(encoding, feature_map, normalizer, summation, (q, k, v))
    encode, chosen = choices.encoding, choices.summation
    numbered = {} if encode.axes > 1 else {"positions": positions}
    _check_layout(q, k, layout, mask=mask, sequences=sequences, decay=decay, **numbered)
    log_r = _read_decays(decay, log_decay, encode, k)
    u = _read_steps(steps, encode, k)
    if state is not None:
        check_decoding_state(state)
        require(
            state.window is None, "state must have no window: it is of a layer with a convolution. Pass it to that."
        )
        require(chosen.causal, 'A bidirectional sum cannot continue a state. Pass state=None, or summation="causal".')
    wanted = isinstance(output_final_state, bool)
    require(wanted, lambda: f"output_final_state must be True or False; got {type(output_final_state).__name__}.")
    context = _context_of(q, k, attention)
    given, of_context = Given(positions, mask, sequences, cu_seqlens), Given(context_positions, context_mask)
    counted = {"state": state, "counts": log_r is not None or u is not None, "causal": chosen.causal}
    tokens, key_tokens = read_sides(q, context, given, of_context, encode.axes, **counted)
    q, k, v = zero_padding(q, tokens.mask), zero_padding(k, key_tokens.mask), zero_padding(v, key_tokens.mask)
    if log_decay is not None:
        log_r = bound_log_decay(_hide_padding(log_decay, key_tokens.mask))
    u = None if u is None else _hide_padding(u, key_tokens.mask)
    order = Order(tokens, key_tokens, log_r, u, state)
    out, after = sum_and_normalize(q, k, v, choices, order, output_final_state)
    return _swap(out, layout), after


def _read_decays(decay: Any, log_decay: Any, encoding: PositionalEncoding, k: Tensor) -> Tensor | None:
    """Return log r of one step from whichever of the two is given: (1, key heads, 1), or per token."""
    if isinstance(decay, Decay):
        raise LrpeError(
            "decay must be a name, numbers or None here: a Decay needs the tokens. Pass log_decay=decay(x)."
        )
    if log_decay is None:
        r = read_decay(decay, encoding, k.shape[1])
        return None if r is None else in_float64(r).to(k.device).log()[None, :, None]
    require(decay is None, lambda: f"log_decay replaces decay; got decay={decay!r} too. Pass one of the two.")
    check_alone(encoding)
    return read_log_decay(log_decay, k)


def _read_steps(steps: Any, encoding: PositionalEncoding, k: Tensor) -> Tensor | None:
    if steps is None:
        require(
            encoding.steps == "fixed",
            "This encoding takes its steps from the tokens. Pass steps=, or use LinearAttention, which learns them.",
        )
        return None
    return read_steps(steps, encoding, k)


def _hide_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return numbers per token, (batch or 1, heads or 1, n) or with a last axis, with zeros at padding."""
    return zero_padding(x, mask) if x.ndim == 4 else zero_padding(x.unsqueeze(-1), mask).squeeze(-1)


def _swap(x: Tensor, layout: str) -> Tensor:
    """Swap (batch, n, heads, d) and (batch, heads, n, d) if the layout is "bnhd"."""
    return x.transpose(1, 2) if layout == "bnhd" else x


def _read_vectors(q: Any, k: Any, v: Any, layout: str) -> tuple[Tensor, Tensor, Tensor]:
    """Check q, k and v, and return them with heads before tokens."""
    if layout not in _LAYOUTS:
        raise unknown_name("layout", layout, _LAYOUTS)
    check_real("q", q)
    check_real("k", k, q)
    check_real("v", v, q)
    axes = "(batch, heads, n, d)" if layout == "bhnd" else "(batch, n, heads, d)"
    require(
        q.ndim == k.ndim == v.ndim == 4
        and q.shape[0] == k.shape[0]  # not len(q), which would become a constant in an export
        and q.shape[3] == k.shape[3]
        and k.shape[:3] == v.shape[:3]
        and q.shape[3] > 0
        and _heads_fit(q, k, layout),
        lambda: (
            f"q, k and v must be {axes}: q and k share batch and d, k and v all axes but the last, and the heads of k "
            f"divide those of q; got {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}."
        ),
    )
    require(q.dtype == k.dtype == v.dtype, lambda: f"q, k, v must have one dtype; got {q.dtype}, {k.dtype}, {v.dtype}.")
    return _swap(q, layout), _swap(k, layout), _swap(v, layout)


def _heads_fit(q: Tensor, k: Tensor, layout: str) -> bool:
    axis = 1 if layout == "bhnd" else 2
    return k.shape[axis] > 0 and q.shape[axis] > 0 and q.shape[axis] % k.shape[axis] == 0


def _check_layout(q: Tensor, k: Tensor, layout: str, **told: Any) -> None:
    """Refuse arguments whose size shows that heads and tokens were swapped, before anything broadcasts."""
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
                f"{name} is for {size} {'heads' if name == 'decay' else 'tokens'}, but with layout={layout!r} there "
                f"are {heads} heads and {n} tokens. If the axes are swapped, pass layout={other!r}."
            ),
        )


def _last_size(value: Any) -> int | None:
    if isinstance(value, Tensor):
        return value.shape[-1] if value.ndim in (1, 2) else None
    return len(value) if isinstance(value, list | tuple) else None


def _choose(
    encoding: Any, feature_map: Any, normalizer: Any, summation: Any, vectors: tuple[Tensor, Tensor, Tensor]
) -> Choices:
    """Return the chosen objects; a name gives the same one at every call, on q's device and without gradients."""
    q, k, v = vectors
    names = any(isinstance(choice, str | EncodingConfig) for choice in (encoding, feature_map, normalizer))
    with q.device if names else nullcontext():
        phi = choose_feature_map(feature_map, q.shape[-1])
        check_feature_dtype(phi, q)
        norm = choose_normalizer(normalizer, q.shape[1], v.shape[-1])
        if isinstance(normalizer, str):
            norm.requires_grad_(False)
        if not isinstance(encoding, PositionalEncoding):
            config = configure_features(encoding, phi, q.shape[-1], k.shape[1])
            seeded = replace(config, seed=0) if config.seed is None else config
            encoding = choose_encoding(seeded, seeded.head_dim, k.shape[1]).requires_grad_(False)
        return Choices(encoding, phi, norm, choose_summation(summation))


def _context_of(q: Tensor, k: Tensor, attention: str) -> Tensor | None:
    """Return the keys if they are a context, else None."""
    if attention not in _ATTENTIONS:
        raise unknown_name("attention", attention, _ATTENTIONS)
    require(
        attention == "cross" or k.shape[2] == q.shape[2],
        lambda: (
            f"Self-attention needs as many keys as queries; got {q.shape[2]} queries and {k.shape[2]} keys. "
            'Pass attention="cross" if the keys are a context, or layout="bnhd" if the axes are (batch, n, heads, d).'
        ),
    )
    return k if attention == "cross" else None
