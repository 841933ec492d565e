"""One token after a state, described before φ and the encoding, so that an engine can do a layer's step at once."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lrpe.attention.sums.problem import Problem
from lrpe.encodings.encoding import Encoding


class OneToken(NamedTuple):
    """S ← r S + k vᵀ and o = q S / Δ, for k and q that are M φ(x) of one token: P reflections or I, Λ rotations or I.

    Δ is summed from φ(x) ("plain"), from M φ(x) ("encoded") or absent; if it is there, o is divided by it. Nothing here
    has a gradient.
    """

    q: Tensor  # (batch, heads, 1, d)
    k: Tensor  # (batch, key heads, 1, d)
    v: Tensor  # (batch, key heads, 1, e)
    phi: Callable[[Tensor], Tensor]
    encoding: Encoding
    position: Tensor  # (batch or 1, 1) int64
    phase: Tensor | None  # takes the place of the position: (batch or 1, key heads or 1, 1), or with an axis of angles
    mask: Tensor | None  # (batch, 1): False for rows without a token
    delta: Literal["plain", "encoded"] | None
    log_decay: Tensor | None  # (batch or 1, key heads or 1, 1)
    S: Tensor  # before the token
    z: Tensor | None

    def shapes(self) -> Problem:
        """Return a problem with the shapes of the encoded one: a real encoding keeps the width of φ(x)."""
        delta = (None, None) if self.delta is None else (self.q, self.k)
        return Problem(self.q, self.k, self.v, *delta)

    def encode(self) -> Problem:
        """Return the token with its features computed."""
        encoding, dtype = self.encoding, self.q.dtype
        table = encoding.table(self.position, dtype) if self.phase is None else encoding.phase_table(self.phase, dtype)
        plain_q, plain_k = self.phi(self.q), self.phi(self.k)
        if self.mask is not None:
            plain_k = torch.where(self.mask[:, None, :, None], plain_k, 0)
        q, k = encoding.query(plain_q, table), encoding.key(plain_k, table)
        delta = (None, None) if self.delta is None else (plain_q, plain_k) if self.delta == "plain" else (q, k)
        return Problem(q, k, self.v, *delta, self.log_decay, self.S, self.z)


def is_one_token(problem: Problem) -> bool:
    """Return whether a problem is one token after a state, so that nothing needs to be summed over tokens."""
    started = problem.S is not None and (problem.z is None) == (problem.delta_k is None)
    return problem.causal and started and problem.k.shape[2] == 1
