"""Equation 1, the canonical form of relative encodings: f_rel(q_s, k_t) = Σ_l (q̂_s^(l))ᴴ W_{t-s}^(l) k̂_t^(l)."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from lrpe.encodings.encoding import check_features
from lrpe.encodings.position_matrix import align, positions_for
from lrpe.errors import LrpeError, require
from lrpe.precision import Precise, compute_dtype, without_autocast

_Part = Callable[[Tensor], Tensor]  # q ↦ q̂ or k ↦ k̂: (..., n, d) -> (..., n, d_l)


def itself(x: Tensor) -> Tensor:
    """q̂ = q, or k̂ = k."""
    return x


def ones(x: Tensor) -> Tensor:
    """q̂ = 1, or k̂ = 1: the all-ones vector, which the paper writes as I_d.

    It is one wide. The paper's d equal columns (1/d) [c ⋯ c] times d ones are the one column c times 1.
    """
    return x.new_ones(*x.shape[:-1], 1)


@dataclass(frozen=True)
class Primitive:
    """One term (q̂_s)ᴴ W_{t-s} k̂_t.

    Attributes:
        query: q ↦ q̂ of width d_1, such as ``itself`` or the constant ``ones``.
        key: k ↦ k̂ of width d_2.
        W: integers t-s of shape (u,) ↦ matrices (u, d_1, d_2), or numbers w of shape (u,), which mean w I.
    """

    query: _Part
    key: _Part
    W: Callable[[Tensor], Tensor]

    def scores(self, q: Tensor, k: Tensor, offsets: Tensor, pairs: Tensor) -> Tensor:
        """Return Re (q̂_s)ᴴ W_{t-s} k̂_t for rows q and k, with t-s = offsets[pairs]; -> (..., n, m)."""
        q_hat, k_hat, W = _promote(self.query(q), self.key(k), self.W(offsets).to(q.device))
        _check_shape(W, len(offsets), q_hat.shape[-1], k_hat.shape[-1])
        scores = W[pairs] * (q_hat.conj() @ k_hat.mT) if W.ndim == 1 else _contract(q_hat, W, k_hat, pairs)
        return scores.real if scores.is_complex() else scores

    def matrix(self, offset: int, head_dim: int) -> Tensor:
        """Return W_{t-s} for one t-s as a d_1 × d_2 matrix in float64 or complex128, on the CPU."""
        x = torch.zeros(1, head_dim, dtype=torch.float64, device="cpu")
        d_1, d_2 = self.query(x).shape[-1], self.key(x).shape[-1]
        _, W = _promote(x, self.W(torch.tensor([offset], device="cpu")).to("cpu"))
        _check_shape(W, 1, d_1, d_2)
        return W * torch.eye(d_1, device="cpu") if W.ndim == 1 else W[0]


class CanonicalForm(Precise):
    """f_rel(q_s, k_t) = Σ_l (q̂_s^(l))ᴴ W_{t-s}^(l) k̂_t^(l), for a query at s and a key at t; the real part, if complex.

    These are scores of vanilla attention, before any scale or softmax, computed in O(n²). ``linearizable`` declares
    whether features of a width that does not depend on n have them as inner products, which linear attention needs.
    A form describes one head, or all heads alike. A subclass defines ``primitives`` and ``linearizable``.
    """

    linearizable: bool

    def __init__(self, head_dim: int):
        super().__init__()
        require(head_dim >= 1, f"head_dim must be at least 1; got head_dim={head_dim}.")
        self.head_dim = head_dim

    @abstractmethod
    def primitives(self) -> tuple[Primitive, ...]:
        """Return the m terms of the sum."""

    def queries(self, q: Tensor) -> Tensor:
        """Return q̂, the concatenated q̂^(l); (..., n, head_dim) -> (..., n, Σ d_1)."""
        check_features(q, self.head_dim)
        return torch.cat([primitive.query(q) for primitive in self.primitives()], -1)

    def keys(self, k: Tensor) -> Tensor:
        """Return k̂, the concatenated k̂^(l); (..., n, head_dim) -> (..., n, Σ d_2)."""
        check_features(k, self.head_dim)
        return torch.cat([primitive.key(k) for primitive in self.primitives()], -1)

    def relative(self, offset: int) -> Tensor:
        """Return Ŵ_{t-s} = block-diag(W^(1), ..., W^(m)) in float64 or complex128 on the CPU; f_rel = q̂ᴴ Ŵ k̂."""
        whole = isinstance(offset, int) and not isinstance(offset, bool)
        require(whole, f"offset, t-s, must be an integer; got offset={offset!r}.")
        return torch.block_diag(*(primitive.matrix(offset, self.head_dim) for primitive in self.primitives()))

    def scores(
        self, q: Tensor, k: Tensor, query_positions: Tensor | None = None, key_positions: Tensor | None = None
    ) -> Tensor:
        """Return f_rel of every query with every key; (..., n, head_dim) and (..., m, head_dim) -> (..., n, m).

        Positions are integers of shape (n,), or (batch, n) for the first axis; 0, 1, ... if not given. Every W is
        evaluated once for each distinct t-s, not for each pair.
        """
        check_features(q, self.head_dim)
        check_features(k, self.head_dim)
        q, k = _broadcast(q, k)
        s = align(positions_for(q, query_positions, 1)[:, None, :, None], q, "batch")  # (..., n, 1)
        t = align(positions_for(k, key_positions, 1)[:, None, :, None], k, "batch").mT  # (..., 1, m)
        offsets, pairs = torch.unique(t - s, return_inverse=True)
        dtype = torch.promote_types(q.dtype, k.dtype)
        if len(offsets) == 0:
            return torch.zeros(*q.shape[:-1], k.shape[-2], dtype=dtype, device=q.device)
        q, k = q.to(compute_dtype(dtype)), k.to(compute_dtype(dtype))
        with without_autocast(q):
            terms = (primitive.scores(q, k, offsets, pairs) for primitive in self.primitives())
            return reduce(torch.add, terms).to(dtype)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.scores(*args, **kwargs)

    def extra_repr(self) -> str:
        return f"head_dim={self.head_dim}"


def _contract(q_hat: Tensor, W: Tensor, k_hat: Tensor, pairs: Tensor) -> Tensor:
    """Return Σ_j (q̂_sᴴ W_{t-s})_j (k̂_t)_j, one j at a time: multiply by all distinct W, then gather per pair.

    The sum runs along the narrower side, so a W of one column or one row costs what its own paper says. A matrix per
    pair is never formed: (..., n, d_1), (u, d_1, d_2), (..., m, d_2) and indices of W (..., n, m) -> (..., n, m).
    """
    _, d_1, d_2 = W.shape
    if d_1 < d_2:
        return _contract(k_hat, W.mH, q_hat, pairs.mT).mH
    pairs = pairs.expand(*q_hat.shape[:-1], k_hat.shape[-2])
    products = (q_hat.conj() @ W_j.mT for W_j in W.unbind(-1))  # each (..., n, u)
    terms = (p.gather(-1, pairs) * k_j.unsqueeze(-2) for p, k_j in zip(products, k_hat.unbind(-1), strict=True))
    return reduce(torch.add, terms)


def _promote(x: Tensor, *others: Tensor) -> list[Tensor]:
    """Return all tensors in x's precision, and all complex if one is."""
    dtype = x.dtype.to_real()
    if any(tensor.is_complex() for tensor in (x, *others)):
        dtype = dtype.to_complex()
    return [tensor.to(dtype) for tensor in (x, *others)]


def _check_shape(W: Tensor, count: int, d_1: int, d_2: int) -> None:
    shape = tuple(W.shape)
    fits = shape == (count, d_1, d_2) or (shape == (count,) and d_1 == d_2)
    require(
        fits,
        f"W must map {count} offsets to matrices of shape ({count}, {d_1}, {d_2}), as q̂ is {d_1} and k̂ {d_2} wide, or, "
        f"where these are equal, to numbers of shape ({count},); got {shape}.",
    )


def _broadcast(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Expand q and k to the same leading axes."""
    try:
        lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    except RuntimeError:
        shapes = f"{tuple(q.shape)} and {tuple(k.shape)}"
        raise LrpeError(f"The axes of q and k before the last two must broadcast; got {shapes}.") from None
    return q.expand(*lead, *q.shape[-2:]), k.expand(*lead, *k.shape[-2:])
