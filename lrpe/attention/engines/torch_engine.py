"""The torch engine: every sum, through torch's own operations."""

import torch
from torch import Tensor

from lrpe.attention.description import OneToken, Unencoded, is_one_token
from lrpe.attention.normalizer import divide_by_delta
from lrpe.attention.sums.bidirectional import bidirectional_sums
from lrpe.attention.sums.causal import causal_sums
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.precision import in_full_precision


class TorchEngine:
    """Every sum, on every device, in every dtype, compiled, exported and under torch.func."""

    name = "torch"

    def missing(self) -> None:
        """The engine is always here."""

    def declines(self, problem: Problem | Unencoded | OneToken) -> None:
        """The engine declines nothing."""

    def sums(self, problem: Problem | Unencoded | OneToken) -> Sums:
        """Return the sums. Those of an unencoded problem are divided by Δ."""
        if isinstance(problem, OneToken):
            sums = one_token(problem.encode())
            return sums if sums.delta is None else sums._replace(out=divide_by_delta(sums.out, sums.delta))
        if isinstance(problem, Problem) and is_one_token(problem):
            return one_token(problem)
        return sums_by_torch(problem)


def sums_by_torch(problem: Problem | Unencoded) -> Sums:
    """Return the sums of many tokens. Those of an unencoded problem are divided by Δ."""
    if isinstance(problem, Unencoded):
        sums = sums_by_torch(problem.encode())
        return sums if sums.delta is None else sums._replace(out=divide_by_delta(sums.out, sums.delta))
    return causal_sums(problem) if problem.causal else bidirectional_sums(problem)


@in_full_precision
def one_token(problem: Problem) -> Sums:
    """Return o, Δ and the next state of one token, at a cost that does not depend on the number of earlier tokens."""
    assert problem.S is not None
    carry = None
    if problem.log_decay is not None:
        carry = problem.log_decay.exp().to(problem.S).unsqueeze(-1)  # (batch or 1, key heads or 1, 1, 1)
    out, S = _step(problem.q, problem.k, problem.v, problem.S, carry)
    if problem.delta_q is None or problem.delta_k is None:
        return Sums(out, None, S, None)
    assert problem.z is not None
    ones = problem.delta_k.new_ones(1)  # z is the state of values that are all 1
    delta, z = _step(problem.delta_q, problem.delta_k, ones, problem.z[..., None], carry)
    return Sums(out, delta, S, z[..., 0])


def _step(q: Tensor, k: Tensor, v: Tensor, S: Tensor, carry: Tensor | None) -> tuple[Tensor, Tensor]:
    """S ← r S + k vᵀ, o = q S for the queries of each key; return o (batch, heads, 1, e) and S."""
    faded = S if carry is None else S * carry
    S = torch.addcmul(faded, k.to(S.dtype).mT, v.to(S.dtype))
    if q.shape[1] == k.shape[1]:  # for one token, calls cost more than arithmetic
        return q.to(S.dtype) @ S, S
    rows = q.to(S.dtype).reshape(q.shape[0], k.shape[1], q.shape[1] // k.shape[1], q.shape[-1])
    return (rows @ S).reshape(*q.shape[:3], S.shape[-1]), S
