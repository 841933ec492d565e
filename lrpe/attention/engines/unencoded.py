"""The sum described before φ and the encoding, so that an engine can compute the features inside a chunk."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lrpe.attention.normalizer import divide_by_delta
from lrpe.attention.sums.bidirectional import bidirectional_sums
from lrpe.attention.sums.causal import causal_sums
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.encodings.encoding import Encoding, EncodingTable


class Unencoded(NamedTuple):
    """A Problem whose features are M φ(x), with M = Λ P: P a reflection or I, and Λ of any type by its table, or I.

    Queries and keys are the same tokens. Δ is summed from φ(x) ("plain"), from M φ(x) ("encoded") or absent; if it is
    there, the sum is divided by it.
    """

    q: Tensor  # (batch, heads, n, d)
    k: Tensor  # (batch, key heads, n, d)
    v: Tensor  # (batch, key heads, n, e)
    phi: Callable[[Tensor], Tensor]
    encoding: Encoding
    V: Tensor | None  # P x = x - 2 (x Vᵀ) U; None if P = I
    U: Tensor | None
    turn: Tensor | None  # (batch or 1, key heads or 1, n, ...): the table of Λ; None if Λ = I
    mask: Tensor | None  # (batch, n): False for keys that are padding
    delta: Literal["plain", "encoded"] | None
    log_decay: Tensor | None = None  # as in a Problem
    S: Tensor | None = None
    z: Tensor | None = None
    causal: bool = True

    def shapes(self) -> Problem:
        """Return a problem with the shapes of the encoded one, and no values."""
        q, k = (x.new_empty(()).expand(*x.shape[:3], self.encoding.feature_dim) for x in (self.q, self.k))
        delta = {None: (None, None), "plain": (self.q, self.k), "encoded": (q, k)}[self.delta]
        return Problem(q, k, self.v, *delta)

    def encode(self) -> Problem:
        """Return the problem with its features computed."""
        plain_q, plain_k = self.phi(self.q), self._hide(self.phi(self.k))
        q, k = self._apply_encoding(plain_q), self._apply_encoding(plain_k)
        delta = (None, None) if self.delta is None else (plain_q, plain_k) if self.delta == "plain" else (q, k)
        return Problem(q, k, self.v, *delta, self.log_decay, self.S, self.z, self.causal)

    def _hide(self, x: Tensor) -> Tensor:
        return x if self.mask is None else torch.where(self.mask[:, None, :, None], x, 0)

    def _apply_encoding(self, x: Tensor) -> Tensor:
        basis = () if self.V is None or self.U is None else (self.V, self.U)
        turn = self.q.new_empty(1, 1, self.q.shape[2], 0) if self.turn is None else self.turn
        return self.encoding(x, table=EncodingTable(basis, (turn,)))


def sums_by_torch(problem: Unencoded) -> Sums:
    """Return the sums, divided by Δ if there is one, through torch's own operations."""
    encoded = problem.encode()
    sums = causal_sums(encoded) if problem.causal else bidirectional_sums(encoded)
    return sums if sums.delta is None else sums._replace(out=divide_by_delta(sums.out, sums.delta))
