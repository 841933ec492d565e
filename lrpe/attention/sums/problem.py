"""The problem that every way of summing solves, its solution, and the specification: every score of an n × n matrix."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from lrpe.precision import compute_dtype, in_float64, in_full_precision

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


@in_full_precision
def naive_sums(problem: Problem) -> Sums:
    """Return o, Δ and the last state of a problem by its definition, in time quadratic in n."""
    dtype = compute_dtype(problem.q.dtype)
    q, k, v = problem.q.to(dtype), problem.k.to(dtype), problem.v.to(dtype)
    S = None if problem.S is None else problem.S.to(dtype)
    pairs, since = pair_weights(problem, dtype), _weights_since(problem, dtype)
    out = _weighted(q, k, v, pairs) + _from_state(q, S, since)
    last = _last_state(k, v, S, problem, dtype) if problem.causal else None
    if problem.delta_q is None or problem.delta_k is None:
        return Sums(out, None, last, None)
    delta_q, delta_k, ones = problem.delta_q.to(dtype), problem.delta_k.to(dtype), torch.ones_like(v[..., :1])
    z = None if problem.z is None else problem.z.to(dtype)[..., None]
    delta = _weighted(delta_q, delta_k, ones, pairs) + _from_state(delta_q, z, since)
    z_last = _last_state(delta_k, ones, z, problem, dtype)[..., 0] if problem.causal else None
    return Sums(out, delta, last, z_last)


def pair_weights(problem: Problem, dtype: torch.dtype) -> Tensor:
    """Return w_ts, (batch or 1, key heads or 1, n, m); 0 for later keys if causal, and across sequences."""
    n, m = problem.q.shape[2], problem.k.shape[2]
    if problem.log_decay is None:
        everyone = torch.ones(1, 1, n, m, dtype=dtype, device=problem.q.device)
        return everyone.tril() if problem.causal else everyone
    c, forgotten = problem.summed_decay()
    later = torch.ones(n, m, dtype=c.dtype, device=c.device).triu(1)
    w = ((c[..., :, None] - c[..., None, :]) * (1 - 2 * later)).exp()  # not |c_t - c_s|, whose slope at 0 is lost
    w = w * (forgotten[..., :, None] == forgotten[..., None, :])
    return (w.tril() if problem.causal else w).to(problem.q.device, dtype)


def _weights_since(problem: Problem, dtype: torch.dtype) -> Tensor:
    """Return the weight of the initial state for each token, (batch or 1, key heads or 1, n, 1)."""
    if problem.log_decay is None:
        return torch.ones(1, 1, problem.q.shape[2], 1, dtype=dtype, device=problem.q.device)
    c, forgotten = problem.summed_decay()
    return (c.exp() * (forgotten == 0))[..., None].to(problem.q.device, dtype)


def _weighted(q: Tensor, k: Tensor, v: Tensor, pairs: Tensor) -> Tensor:
    """Return Σ_s w_ts (q_t·k_s) v_s; query head h uses key head h // group."""
    group = q.shape[1] // k.shape[1]
    scores = q.unflatten(1, (k.shape[1], group)) @ k.unsqueeze(2).mT  # (batch, key heads, group, n, m)
    return ((scores * pairs.unsqueeze(2)) @ v.unsqueeze(2)).flatten(1, 2)


def _from_state(q: Tensor, S: Tensor | None, since: Tensor) -> Tensor:
    """Return what the initial state adds to each sum."""
    if S is None:
        return q.new_zeros(1)
    return (q.unflatten(1, (S.shape[1], q.shape[1] // S.shape[1])) * since.unsqueeze(2) @ S.unsqueeze(2)).flatten(1, 2)


def _last_state(k: Tensor, v: Tensor, S: Tensor | None, problem: Problem, dtype: torch.dtype) -> Tensor:
    """Return Σ_s exp(c_n - c_s) k_s v_sᵀ, and the initial state faded likewise."""
    if k.shape[2] == 0:
        return k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1]) if S is None else S
    last = (k * pair_weights(problem, dtype)[..., -1, :, None]).mT @ v
    return last if S is None else last + _weights_since(problem, dtype)[..., -1:, :] * S
