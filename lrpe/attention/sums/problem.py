"""The problem that every way of summing solves: features, values, log-decay and an initial state; and its solution."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from lrpe.precision import in_float64

FORGET = -800.0  # the log-decay of a step that forgets everything before it; exp(-800) is 0 in float64


class Problem(NamedTuple):
    """o_t = Σ_s w_ts (q_t·k_s) v_s and Δ_t = Σ_s w_ts (q'_t·k'_s), with w_ts = exp(c_t - c_s) for s ≤ t.

    c_t = Σ_{τ ≤ t} log_decay_τ is the log-decay summed over tokens. If the sum is not causal, later keys count too,
    with w_ts = exp(c_s - c_t). The first token of a packed sequence has a log-decay of ``FORGET``, so that no weight
    crosses into the sequence before it. Padding has features of 0 and a log-decay of 0.
    """

    q: Tensor  # (batch, heads, n, f)
    k: Tensor  # (batch, key heads, m, f)
    v: Tensor  # (batch, key heads, m, e)
    delta_q: Tensor | None = None  # (batch, heads, n, f'): Δ's features of queries; None if there is no Δ
    delta_k: Tensor | None = None  # (batch, key heads, m, f')
    log_decay: Tensor | None = None  # (batch or 1, key heads or 1, n, or 1 if all tokens share it); None if it is 0
    S: Tensor | None = None  # (batch, key heads, f, e): the state before the first token
    z: Tensor | None = None  # (batch, key heads, f')
    causal: bool = True
    chunk: int = 64  # tokens that a chunkwise sum handles at a time

    @property
    def sums_scores(self) -> bool:
        """Return whether Δ is the sum of the scores themselves, as for features without an encoding."""
        return self.delta_q is self.q and self.delta_k is self.k

    @property
    def starts(self) -> bool:
        """Return whether there is a state before the first token."""
        return self.S is not None or self.z is not None

    def summed_decay(self) -> tuple[Tensor, Tensor]:
        """Return c_t in float64, and the number of steps up to t that forget everything, which c_t leaves out.

        Both are (batch or 1, key heads or 1, n). A weight between tokens with different numbers is 0; if c_t included
        those steps, it would lose digits after each of them.
        """
        assert self.log_decay is not None
        log_decay = in_float64(self.log_decay.expand(-1, -1, self.k.shape[2]))
        forgets = log_decay <= FORGET
        return torch.where(forgets, 0, log_decay).cumsum(-1), forgets.long().cumsum(-1)


class Sums(NamedTuple):
    """The solution: the numerator, Δ if the problem has one, and the state after the last token of a causal sum."""

    out: Tensor  # (batch, heads, n, e)
    delta: Tensor | None = None  # (batch, heads, n, 1)
    S: Tensor | None = None  # (batch, key heads, f, e)
    z: Tensor | None = None  # (batch, key heads, f')


class Summation(ABC):
    """A way to compute Σ_s w_ts (q_t·k_s) v_s over the keys that query t sees."""

    causal: bool

    @abstractmethod
    def __call__(self, problem: Problem) -> Sums: ...
