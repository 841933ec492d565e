"""The fla engine: sums on a GPU, by the Triton kernels of flash-linear-attention."""

import functools
import importlib.util
import os
import re
from importlib.metadata import version

import torch
from torch import Tensor

from lrpe.attention.engines.fla_sum import fla_causal_sums, fla_step
from lrpe.attention.engines.one_token import OneToken
from lrpe.attention.engines.unencoded import Unencoded
from lrpe.attention.normalizer import divide_by_delta
from lrpe.attention.sums.bidirectional import bidirectional_sums
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.autograd import only_torch_operations

_PACKAGES = {"fla": "fla-core", "triton": "triton"}  # module and package
_HOPPER = 9  # the major compute capability
_RIGHT_ON_HOPPER = (3, 7, 1)  # older versions of triton compute wrong gradients there, and fla refuses them


class FlaEngine:
    """Causal sums, and bidirectional ones with a decay, on a CUDA device.

    With ``TRITON_INTERPRET=1`` in the environment, Triton's interpreter runs the kernels, slowly, on CPU tensors. This
    is how they are tested without a GPU, and the only way in which the engine takes a CPU tensor.
    """

    name = "fla"

    def missing(self) -> str | None:
        """Return why the engine is not here at all, or None."""
        here = _interpreted() or torch.cuda.is_available()
        return _lacks_packages() or (None if here else "it needs a CUDA device, and torch finds none")

    def declines(self, problem: Problem | Unencoded | OneToken) -> str | None:
        """Return why the engine leaves this problem to torch, or None if it takes it."""
        device = problem.q.device
        if device.type != ("cpu" if _interpreted() else "cuda"):  # first: it is cheap, and enough on every CPU
            return f"it runs on CUDA; q is on {device}"
        if not isinstance(problem, Problem | Unencoded):  # described for another engine
            return "it takes features, or queries and keys before φ and the encoding"
        if only_torch_operations():
            return "torch.compile, export, tracing, torch.func and forward-mode derivatives need torch's operations"
        return _lacks_packages() or _declines_tensors(problem) or _declines_sum(problem) or _declines_gpu(problem)

    def sums(self, problem: Problem | Unencoded | OneToken) -> Sums:
        """Return the sums. Those of an unencoded problem are divided by Δ."""
        assert not isinstance(problem, OneToken)  # it declines them
        if isinstance(problem, Unencoded):
            sums = self.sums(problem.encode())
            return sums if sums.delta is None else sums._replace(out=divide_by_delta(sums.out, sums.delta))
        if not problem.causal:
            return bidirectional_sums(problem, fla_causal_sums)
        return fla_step(problem) if _is_step(problem) else fla_causal_sums(problem)


def _lacks_packages() -> str | None:
    absent = _absent_packages()
    return f"it needs {' and '.join(absent)}; run pip install 'lrpe[gpu]'" if absent else None


@functools.cache
def _absent_packages() -> tuple[str, ...]:
    return tuple(package for module, package in _PACKAGES.items() if importlib.util.find_spec(module) is None)


def _is_step(problem: Problem | Unencoded) -> bool:
    """Return whether the problem is one token after a state, whose sums have no matrix product."""
    return isinstance(problem, Problem) and problem.S is not None and problem.k.shape[2] == 1


def _interpreted() -> bool:
    """Return whether Triton's interpreter runs the kernels on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _declines_tensors(problem: Problem | Unencoded) -> str | None:
    tensors = [x for x in problem if isinstance(x, Tensor)]
    if any(type(x) not in (Tensor, torch.nn.Parameter) for x in tensors):
        return "it reads plain tensors only, no subclass"
    if any(x.device != problem.q.device for x in tensors):
        return f"all tensors must be on one device; q is on {problem.q.device}"
    if problem.q.dtype == torch.float64:
        return "it computes in float32 or less; got torch.float64"
    if problem.q.numel() == 0 or problem.v.numel() == 0:
        return "there is nothing to sum"
    return None


def _declines_sum(problem: Problem | Unencoded) -> str | None:
    if not problem.causal and problem.log_decay is None:
        return "a bidirectional sum without decay is two matrix products, which torch computes"
    return None


def _declines_gpu(problem: Problem | Unencoded) -> str | None:
    """Decline what Triton would round more than torch is asked to, or compute wrongly, on this GPU."""
    device = problem.q.device
    if device.type != "cuda":
        return None
    if problem.q.dtype == torch.float32 and not (_is_step(problem) or _multiplies_as_asked()):
        return (
            "Triton multiplies float32 in TF32, but torch is set to full float32 precision; call "
            'torch.set_float32_matmul_precision("high"), or start Python with TRITON_F32_DEFAULT=ieee'
        )
    if problem.log_decay is not None and torch.cuda.get_device_capability(device)[0] == _HOPPER:
        found = version("triton")
        if tuple(map(int, re.findall(r"\d+", found)[:3])) < _RIGHT_ON_HOPPER:
            return f"triton {found} computes wrong gradients of a decayed sum on Hopper; install triton 3.7.1 or newer"
    return None


def _multiplies_as_asked() -> bool:
    """Return whether Triton's products of float32 are as precise as torch is asked to be.

    Triton decides when it first compiles a kernel, so nothing that is set around a call would change it.
    """
    return torch.get_float32_matmul_precision() != "highest" or os.environ.get("TRITON_F32_DEFAULT") == "ieee"
