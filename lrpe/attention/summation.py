"""The choice of summation: causal or bidirectional in linear time, or the quadratic specification."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from lrpe.arguments import check_count
from lrpe.attention.engines.choice import choose_engine
from lrpe.attention.sums.naive import naive_sums
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.errors import LrpeError, require, unknown_name


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
        problem = problem._replace(chunk=self.chunk)
        return choose_engine(problem).sums(problem)


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
