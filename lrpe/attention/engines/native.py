"""The native engine: sums of float32 on a CPU, by a compiled kernel that keeps each chunk in the cache."""

import torch
from torch import Tensor

from lrpe.attention.engines.library import load_library
from lrpe.attention.engines.native_step import declines_token, native_step
from lrpe.attention.engines.native_sum import MOST_REFLECTIONS, feature_code, native_sums
from lrpe.attention.engines.one_token import OneToken, is_one_token
from lrpe.attention.engines.unencoded import Unencoded
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.autograd import needs_gradient, only_torch_operations


class NativeEngine:
    """Sums of float32 on a CPU."""

    name = "native"

    def missing(self) -> str | None:
        """Return why the engine is not here at all, or None."""
        found = load_library()
        return found if isinstance(found, str) else None

    def declines(self, problem: Problem | Unencoded | OneToken) -> str | None:
        """Return why the engine leaves this problem to torch, or None if it takes it."""
        if only_torch_operations():
            return "torch.compile, export, tracing, torch.func and forward-mode derivatives need torch's operations"
        missing = self.missing()
        if missing is not None:
            return missing
        if isinstance(problem, OneToken):
            return declines_token(problem)
        if isinstance(problem, Problem):
            return _declines_tensors(problem)
        return _declines_tensors(problem) or _declines_features(problem)

    def sums(self, problem: Problem | Unencoded | OneToken) -> Sums:
        """Return the sums. Those of an unencoded problem are divided by Δ."""
        if isinstance(problem, OneToken):
            return native_step(problem)
        if isinstance(problem, Problem) and is_one_token(problem) and not needs_gradient(*problem):
            return native_step(problem)
        return native_sums(problem)


def _declines_tensors(problem: Problem | Unencoded) -> str | None:
    tensors = [x for x in problem if isinstance(x, Tensor)]
    if any(type(x) not in (Tensor, torch.nn.Parameter) for x in tensors):
        return "it reads plain tensors only, no subclass"
    if any(x.device.type != "cpu" for x in tensors):
        return f"it runs on the CPU; q is on {problem.q.device}"
    others = (problem.log_decay, getattr(problem, "mask", None), getattr(problem, "turn", None))
    odd = next((x.dtype for x in tensors if x.dtype != torch.float32 and not any(x is y for y in others)), None)
    if odd is not None:
        return f"it computes in float32; got {odd}"
    if problem.q.numel() == 0 or problem.v.numel() == 0:
        return "there is nothing to sum"
    return None


def _declines_features(problem: Unencoded) -> str | None:
    if feature_code(problem.phi) is None:
        return "it has no such feature map"
    if problem.V is not None and problem.V.shape[0] > MOST_REFLECTIONS:
        return f"it takes at most {MOST_REFLECTIONS} reflections"
    return None
