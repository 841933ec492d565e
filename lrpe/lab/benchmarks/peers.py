"""Other implementations: causal sums (fla, fast-transformers), softmax attention (SDPA), and rotations of Type 2."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from lrpe.encodings.angles import geometric
from lrpe.lab.benchmarks.device import place
from lrpe.positions import sequence

Sum = Callable[[Tensor, Tensor, Tensor], Tensor]  # q, k, v, each (batch, heads, n, d) -> (batch, heads, n, d)


@dataclass(frozen=True)
class SumPeer:
    """Another implementation of Σ_{s ≤ t} (q_t·k_s) v_s; ``sum`` is None if it is not installed."""

    name: str
    package: str
    sum: Sum | None


def causal_peers() -> list[SumPeer]:
    return [
        SumPeer("fla's torch form, sum alone", "fla-core", fla_chunk_form()),
        SumPeer("fast-transformers' C++, sum alone", "pytorch-fast-transformers", _fast_transformers_product()),
    ]


def fla_chunk_form() -> Sum | None:
    """Return flash-linear-attention's torch form; its file is loaded alone, because the package imports triton.

    It takes (batch, n, heads, d); it gets views of our layout, so it does not pay for a copy.
    """
    package = importlib.util.find_spec("fla")
    folders = (package and package.submodule_search_locations) or []
    files = [file for folder in folders if (file := Path(folder, "ops", "linear_attn", "naive.py")).exists()]
    if not files:
        return None
    spec = importlib.util.spec_from_file_location("fla_naive", files[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        chunk_form = module.naive_chunk_linear_attn
    except (ImportError, AttributeError):
        return None

    def form(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return chunk_form(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), scale=1.0).transpose(1, 2)

    return form


def _fast_transformers_product() -> Sum | None:
    try:
        from fast_transformers.causal_product import causal_dot_product  # type: ignore[import-not-found]
    except ImportError:
        return None
    return causal_dot_product


def softmax_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def softmax_everywhere(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v)


def softmax_written_out(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Return softmax(q kᵀ / √d) v, computed with the n × n matrix."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return scores.softmax(-1) @ v


_EXACT = 1e-5


@dataclass(frozen=True)
class Peer:
    """Another implementation of the rotation; its features or its scores (``equal``) are ours, to ``tolerance``.

    ``rotate`` is None if the peer is not installed.
    """

    name: str
    equal: Literal["features", "scores"]
    tolerance: float
    rotate: Callable[[Tensor], Tensor] | None


def rotary_peers(n: int, dim: int) -> list[Peer]:
    """Return every peer for n positions and dim features, with precomputed tables unless its name says otherwise."""
    rounded = _EXACT + n * 2.0**-22  # an angle of n radians in float32 has an error of up to n·2⁻²⁴
    return [
        Peer("paper's listing", "features", _EXACT, listing_with_table(n, dim)),
        Peer("paper's listing, angles in the call", "features", rounded, listing),
        Peer("transformers", "scores", _EXACT, _transformers_rotation(n, dim)),
        Peer("rotary-embedding-torch", "features", rounded, _rotary_embedding_torch_rotation(n, dim)),
    ]


def _exact_angles(n: int, dim: int) -> Tensor:
    """Return s·α in float64, (n, dim/2)."""
    return place(sequence(n)[:, None] * geometric(dim // 2, dim).double())


def listing(x: Tensor) -> Tensor:
    """y = x cos(sα) + (-x_1, x_0, -x_3, x_2, ...) sin(sα), with α and s·α computed in x's dtype, as published."""
    n, dim = x.shape[-2:]
    alpha = (10000 ** (-2 / dim * torch.arange(dim // 2))).to(x)
    alpha = torch.stack([alpha, alpha], -1).reshape(dim)
    angle = alpha * torch.arange(n).reshape(-1, 1).to(x)
    return _turn_pairs(x, torch.cos(angle), torch.sin(angle))


def listing_with_table(n: int, dim: int) -> Callable[[Tensor], Tensor]:
    angle = _exact_angles(n, dim).repeat_interleave(2, -1)
    cos, sin = angle.cos().float(), angle.sin().float()
    return lambda x: _turn_pairs(x, cos, sin)


def _turn_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    swapped = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).reshape_as(x)
    return x * cos + swapped * sin


def _transformers_rotation(n: int, dim: int) -> Callable[[Tensor], Tensor] | None:
    """Return Llama's rotation of (x[k], x[dim/2 + k]); it also rotates keys, so it gets keys with 0 heads."""
    try:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
    except ImportError:
        return None
    angle = _exact_angles(n, dim).repeat(1, 2)[None]  # (1, n, dim)
    cos, sin = angle.cos().float(), angle.sin().float()
    return lambda x: apply_rotary_pos_emb(x, x[:, :0], cos, sin)[0]


def _rotary_embedding_torch_rotation(n: int, dim: int) -> Callable[[Tensor], Tensor] | None:
    try:
        from rotary_embedding_torch import apply_rotary_emb
    except ImportError:
        return None
    angle = _exact_angles(n, dim).repeat_interleave(2, -1).float()
    return lambda x: apply_rotary_emb(angle, x)
