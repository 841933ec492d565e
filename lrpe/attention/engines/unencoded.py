"""The sum described before φ and the encoding, so that an engine can compute the features inside a chunk."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lrpe.attention.normalizer import divide_by_delta
from lrpe.attention.sums.causal import causal_sums
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.encodings.encoding import Encoding, EncodingTable


class Unencoded(NamedTuple):
    """A causal Problem whose features are M φ(x), with M = Λ P a reflection or I, then a rotation of pairs or I.

    Δ is summed from φ(x) ("plain"), from M φ(x) ("encoded") or absent; if it is there, the sum is divided by it.
    """

    q: Tensor  # (batch, heads, n, d)
    k: Tensor  # (batch, key heads, n, d)
    v: Tensor  # (batch, key heads, n, e)
    phi: Callable[[Tensor], Tensor]
    encoding: Encoding
    V: Tensor | None  # P x = x - 2 (x Vᵀ) U; None if P = I
    U: Tensor | None
    turn: Tensor | None  # (batch or 1, key heads or 1, n, 2 · angles): cos and sin of each angle; None if Λ = I
    mask: Tensor | None  # (batch, n): False for keys that are padding
    delta: Literal["plain", "encoded"] | None
    log_decay: Tensor | None = None  # as in a Problem
    S: Tensor | None = None
    z: Tensor | None = None

    def shapes(self) -> Problem:
        """Return a problem with the shapes of the encoded one: a real encoding keeps the width of φ(x)."""
        delta = (None, None) if self.delta is None else (self.q, self.k)
        return Problem(self.q, self.k, self.v, *delta)

    def encode(self) -> Problem:
        """Return the problem with its features computed."""
        plain_q, plain_k = self.phi(self.q), self._hide(self.phi(self.k))
        q, k = self._apply_encoding(plain_q), self._apply_encoding(plain_k)
        delta = (None, None) if self.delta is None else (plain_q, plain_k) if self.delta == "plain" else (q, k)
        return Problem(q, k, self.v, *delta, self.log_decay, self.S, self.z)

    def _hide(self, x: Tensor) -> Tensor:
        return x if self.mask is None else torch.where(self.mask[:, None, :, None], x, 0)

    def _apply_encoding(self, x: Tensor) -> Tensor:
        basis = () if self.V is None or self.U is None else (self.V, self.U)
        turn = self.q.new_empty(1, 1, self.q.shape[2], 0) if self.turn is None else self.turn
        return self.encoding(x, table=EncodingTable(basis, (turn,)))


def sums_by_torch(problem: Unencoded) -> Sums:
    """Return the sums, divided by Δ if there is one, through torch's own operations."""
    sums = causal_sums(problem.encode())
    return sums if sums.delta is None else sums._replace(out=divide_by_delta(sums.out, sums.delta))
