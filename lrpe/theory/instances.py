"""Relative encodings of the literature in canonical form, linearizable or not; q_s is a query at s, k_t a key at t."""

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn

from lrpe.encodings.encoding import Encoding, PositionalEncoding
from lrpe.errors import LrpeError, require
from lrpe.precision import at_least_float32, in_float64, next_seed, normal
from lrpe.theory.canonical import CanonicalForm, Primitive, itself, ones


def _identity(offsets: Tensor) -> Tensor:
    """W_{t-s} = I."""
    return torch.ones(len(offsets), device=offsets.device)


_CONTENT = Primitive(itself, itself, _identity)  # q_s · k_t


class _Bias(CanonicalForm):
    """q_s · k_t + w_{row(t-s)}, a learned number for each row of a table.

    Not linearizable in general: the rank of the n × n matrix (w_{row(t-s)}) grows with n, so no features of a fixed
    width have these inner products.
    """

    linearizable = False

    def __init__(self, head_dim: int, rows: int, seed: int | None):
        super().__init__(head_dim)
        self.w = _learned_table(rows, head_dim=head_dim, seed=seed)

    @abstractmethod
    def row(self, offsets: Tensor) -> Tensor:
        """Return the row of the table for each t-s: integers -> 0, ..., rows - 1."""

    def primitives(self) -> tuple[Primitive, ...]:
        return _CONTENT, Primitive(ones, ones, lambda offsets: self.w[self.row(offsets)])


class Additive(_Bias):
    """q_s · k_t + w_{clip(t-s)}, a learned number for each t-s from -max_distance to max_distance.

    The paper's "Additive", which it takes from Huang et al. (2020). Primitives: (q, k, I) and (1, 1, w_{clip(t-s)}),
    with the all-ones vector where the paper prints I_d. Not linearizable in general: the rank of (w_{clip(t-s)}) grows
    with n.
    """

    def __init__(self, head_dim: int, max_distance: int = 128, seed: int | None = None):
        super().__init__(head_dim, 2 * _at_least_one(max_distance) + 1, seed)
        self.max_distance = max_distance

    def row(self, offsets: Tensor) -> Tensor:
        return _clip(offsets, self.max_distance)


class T5Buckets(_Bias):
    """q_s · k_t + w_{bucket(t-s)}: small distances have a bucket each, larger ones share them logarithmically.

    T5 (Raffel et al., 2020), which leaves out the division of scores by √d. Causal buckets see the past alone: all
    keys after the query share bucket 0. Primitives: (q, k, I) and (1, 1, w_{bucket(t-s)}). Not linearizable in
    general: the rank of (w_{bucket(t-s)}) grows with n.
    """

    def __init__(
        self,
        head_dim: int,
        bidirectional: bool = True,
        num_buckets: int = 32,
        max_distance: int = 128,
        seed: int | None = None,
    ):
        super().__init__(head_dim, num_buckets, seed)
        self.bidirectional, self.max_distance = bidirectional, _at_least_one(max_distance)
        self.side = num_buckets // 2 if bidirectional else num_buckets  # buckets in one direction
        self.exact = self.side // 2
        least = 4 if bidirectional else 2
        require(
            num_buckets >= least,
            f"num_buckets must be at least {least}, 2 per direction; got num_buckets={num_buckets}.",
        )
        require(
            max_distance > self.exact,
            f"max_distance must exceed {self.exact}, the number of distances with a bucket of their own; got "
            f"max_distance={max_distance}.",
        )

    def row(self, offsets: Tensor) -> Tensor:
        distance = offsets.abs() if self.bidirectional else (-offsets).clamp(min=0)
        after = self.side * (offsets > 0) if self.bidirectional else 0
        # exact + ⌊(side - exact) ln(distance / exact) / ln(max_distance / exact)⌋, in float32 and in T5's order, so
        # that every distance on the edge of a bucket is rounded as T5 rounds it
        log = torch.log(distance.clamp(min=self.exact).float() / self.exact) / math.log(self.max_distance / self.exact)
        shared = self.exact + (log * (self.side - self.exact)).long()
        return after + torch.where(distance < self.exact, distance, shared.clamp(max=self.side - 1))


class RPR(CanonicalForm):
    """q_s · k_t + q_s · w_{clip(t-s)}, a learned vector for each t-s from -max_distance to max_distance.

    Shaw et al. (2018), their keys; what they add to the values is no score. Primitives: (q, k, I) and
    (q, 1, w_{clip(t-s)}), W a column. Not linearizable in general: the rank of the matrix of all w_{t-s} grows with n.
    """

    linearizable = False

    def __init__(self, head_dim: int, max_distance: int = 16, seed: int | None = None):
        super().__init__(head_dim)
        self.max_distance = _at_least_one(max_distance)
        self.w = _learned_table(2 * max_distance + 1, head_dim, head_dim=head_dim, seed=seed)

    def primitives(self) -> tuple[Primitive, ...]:
        return _CONTENT, Primitive(itself, ones, self.column)

    def column(self, offsets: Tensor) -> Tensor:
        return self.w[_clip(offsets, self.max_distance)].unsqueeze(-1)  # (u, d, 1)


class DeBERTa(CanonicalForm):
    """q_s · k_t + q_s · k̄_{g(s-t)} + q̄_{g(t-s)} · k_t, with g(x) = 0 if x ≤ -c, 2c-1 if x ≥ c, else x + c.

    He et al. (2021), c = max_distance; k̄ and q̄ are learned vectors, here after DeBERTa's projections and before its
    division by √3d. There are 2c rows for 2c+1 distances, so x = c-1 and x ≥ c share one. Primitives: (q, k, I),
    (q, 1, k̄_{g(s-t)}), W a column, and (1, k, q̄ᴴ_{g(t-s)}), W a row where the paper prints columns. Not linearizable
    in general: the ranks of the matrices of all k̄_{g(s-t)} and of all q̄_{g(t-s)} grow with n.
    """

    linearizable = False

    def __init__(self, head_dim: int, max_distance: int = 512, seed: int | None = None):
        super().__init__(head_dim)
        self.max_distance = _at_least_one(max_distance)
        self.k_bar = _learned_table(2 * max_distance, head_dim, head_dim=head_dim, seed=seed)
        self.q_bar = _learned_table(2 * max_distance, head_dim, head_dim=head_dim, seed=next_seed(seed))

    def primitives(self) -> tuple[Primitive, ...]:
        return _CONTENT, Primitive(itself, ones, self.column), Primitive(ones, itself, self.row)

    def g(self, x: Tensor) -> Tensor:
        return x.clamp(-self.max_distance, self.max_distance - 1) + self.max_distance

    def column(self, offsets: Tensor) -> Tensor:
        return self.k_bar[self.g(-offsets)].unsqueeze(-1)  # (u, d, 1)

    def row(self, offsets: Tensor) -> Tensor:
        return self.q_bar[self.g(offsets)].unsqueeze(-2)  # (u, 1, d)


class CosFormer(CanonicalForm):
    """q_s · k_t cos(α(t-s)), with α = π / 2·length in cosFormer (Qin et al., 2022).

    Primitive: (q, k, cos(α(t-s)) I). Linearizable: cos(α(t-s)) = cos αs cos αt + sin αs sin αt, so the features
    [x cos αs ‖ x sin αs] have these inner products. cos(α(t-s)) I is not unitary; it is the real part of
    e^{iα(t-s)} I, which is, and so cosFormer is Type 1 with P = I and one α.
    """

    linearizable = True

    def __init__(self, head_dim: int, alpha: float):
        super().__init__(head_dim)
        require(math.isfinite(alpha), f"alpha must be a finite number, such as π / 2·length; got alpha={alpha}.")
        self.alpha = alpha

    def primitives(self) -> tuple[Primitive, ...]:
        return (Primitive(itself, itself, lambda offsets: (self.alpha * in_float64(offsets)).cos()),)


class FamilyForm(CanonicalForm):
    """Re q_sᴴ W_{t-s} k_t with W_{t-s} = Pᴴ Λ^(t-s) D P, for any member of the family, such as RoPE; D = I without a δ.

    Primitive: (q, k, Pᴴ Λ^(t-s) D P), W real if P and Λ are. Linearizable: it is (M_s q_s)ᴴ (M_t D k_t), M_s = Λ^(s) P.
    W comes from the dense matrices that specify the encoding, through which no gradient flows to a learned P or Λ. The
    encoding's ``score_scale``, which attention applies, is left out.
    """

    linearizable = True

    def __init__(self, encoding: PositionalEncoding):
        if not isinstance(encoding, Encoding):
            raise LrpeError(f"encoding must be an Encoding, M_s = Λ^(s) P; got {type(encoding).__name__}.")
        shared = encoding.heads is None and encoding.decay is None
        require(
            shared and encoding.axes == 1,
            f"A canonical form has one W per integer t-s; got an encoding with heads={encoding.heads}, "
            f"{'no' if encoding.decay is None else 'a'} decay and axes={encoding.axes}. Build it without them.",
        )
        super().__init__(encoding.head_dim)
        self.encoding = encoding

    def primitives(self) -> tuple[Primitive, ...]:
        return (Primitive(itself, itself, self.W),)

    def W(self, offsets: Tensor) -> Tensor:
        basis, matrix = self.encoding.basis, self.encoding.matrix
        P, Lambda = basis.dense(), torch.stack([matrix.dense(offset) for offset in offsets.tolist()])
        W = P.mH @ (Lambda @ matrix.dense_key_phase()) @ P
        return W if basis.is_complex or matrix.is_complex else W.real


def _learned_table(*shape: int, head_dim: int, seed: int | None) -> nn.Parameter:
    """Return a learned table, initialised with variance 1/d."""
    require(
        min(shape) >= 1 and head_dim >= 1,
        f"head_dim and the sizes of a table must be at least 1; got head_dim={head_dim} and a table of shape {shape}.",
    )
    value = normal(*shape, seed=seed) / math.sqrt(head_dim)
    return nn.Parameter(value.to(at_least_float32(torch.get_default_dtype())))


def _clip(offsets: Tensor, max_distance: int) -> Tensor:
    """Return the row 0, ..., 2·max_distance of each distance, clipped to ±max_distance."""
    return offsets.clamp(-max_distance, max_distance) + max_distance


def _at_least_one(max_distance: int) -> int:
    require(max_distance >= 1, f"max_distance must be at least 1; got max_distance={max_distance}.")
    return max_distance
