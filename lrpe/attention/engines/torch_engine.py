"""The torch engine: every sum, through torch's own operations."""

from lrpe.attention.engines.one_token import OneToken, is_one_token
from lrpe.attention.engines.unencoded import Unencoded, sums_by_torch
from lrpe.attention.normalizer import divide_by_delta
from lrpe.attention.sums.bidirectional import bidirectional_sums
from lrpe.attention.sums.causal import causal_sums
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.attention.sums.recurrent import one_token


class TorchEngine:
    """Every sum, on every device, in every dtype, compiled, exported and under torch.func."""

    name = "torch"

    def missing(self) -> None:
        """The engine is always here."""

    def declines(self, problem: Problem | Unencoded | OneToken) -> None:
        """The engine declines nothing."""

    def sums(self, problem: Problem | Unencoded | OneToken) -> Sums:
        """Return the sums. Those of an unencoded problem are divided by Δ."""
        if isinstance(problem, Unencoded):
            return sums_by_torch(problem)
        if isinstance(problem, OneToken):
            sums = one_token(problem.encode())
            return sums if sums.delta is None else sums._replace(out=divide_by_delta(sums.out, sums.delta))
        if is_one_token(problem):
            return one_token(problem)
        return causal_sums(problem) if problem.causal else bidirectional_sums(problem)
