"""The choice of summation: causal or bidirectional in linear time, or the quadratic specification."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from lrpe.arguments import check_count
from lrpe.attention.engines.choice import choose_engine
from lrpe.attention.sums.naive import naive_sums
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.errors import LrpeError, require, unknown_name
from lrpe.precision import in_full_precision


class Summation(ABC):
    """A way to compute Σ_s w_ts (q_t·k_s) v_s over the keys that query t sees."""

    causal: bool

    @abstractmethod
    def __call__(self, problem: Problem) -> Sums: ...


@dataclass(frozen=True)
class Causal(Summation):
    """Sum over a query's own and earlier keys, chunk by chunk, in time and memory linear in n."""

    chunk: int = 64
    causal = True

    def __post_init__(self):
        check_count("chunk", self.chunk)

    def __call__(self, problem: Problem) -> Sums:
        step = problem.S is not None and problem.k.shape[2] == 1
        if step and problem.q.device.type != "cuda":
            return one_token(problem)
        problem = problem._replace(chunk=self.chunk)
        engine = choose_engine(problem)
        return one_token(problem) if step and engine.name == "torch" else engine.sums(problem)


@dataclass(frozen=True)
class Bidirectional(Summation):
    """Sum over all keys: once for all queries, or by two causal passes with a decay or packed sequences."""

    chunk: int = 64
    causal = False

    def __post_init__(self):
        check_count("chunk", self.chunk)

    def __call__(self, problem: Problem) -> Sums:
        require(not problem.starts, "A bidirectional sum takes no initial state. Pass state=None, or use Causal().")
        problem = problem._replace(chunk=self.chunk, causal=False)
        return choose_engine(problem).sums(problem)


@dataclass(frozen=True)
class Quadratic(Summation):
    """Form the n × n matrix of weighted scores: the specification that the linear-time sums are tested against."""

    causal: bool = True  # type: ignore[assignment]

    def __call__(self, problem: Problem) -> Sums:
        return naive_sums(problem._replace(causal=self.causal))


_SUMMATIONS: dict[str, type[Summation]] = {"causal": Causal, "bidirectional": Bidirectional}


def choose_summation(choice: str | Summation) -> Summation:
    """Return the summation of this name, or the given object."""
    if isinstance(choice, Summation):
        return choice
    if not isinstance(choice, str):
        raise LrpeError(f"summation must be a name or a Summation; got {type(choice).__name__}.")
    if choice not in _SUMMATIONS:
        raise unknown_name("summation", choice, _SUMMATIONS)
    return _SUMMATIONS[choice]()


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
