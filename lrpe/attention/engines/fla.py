"""The fla engine: sums on a GPU, by the Triton kernels of flash-linear-attention."""

import functools
import importlib
import importlib.util
import os
import re
from importlib.metadata import version
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lrpe.attention.description import OneToken, Unencoded
from lrpe.attention.normalizer import divide_by_delta
from lrpe.attention.sums.bidirectional import bidirectional_sums
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.autograd import Differentiable, one_at_a_time, only_torch_operations
from lrpe.errors import LrpeError
from lrpe.precision import in_full_precision

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


_WIDTH = 16  # widths are padded to multiples of it: in half precision the kernels need even ones, and rows align
_VANISHES = -104.0  # a log-decay whose exponential is 0 in float32: what came before is forgotten


@functools.cache
def _kernels() -> Any:
    """Import the kernels when they are first called: they are in an extra, and Triton takes seconds to import."""
    return importlib.import_module("fla.ops.simple_gla")


@in_full_precision
def fla_causal_sums(problem: Problem) -> Sums:
    """Return o, Δ and the last state of a causal problem, in float32."""
    rows, dtype = _Rows.of(problem), _kernel_dtype(problem)
    if problem.delta_q is None or problem.delta_k is None:
        out, S = _weigh(problem.q, problem.k, problem.v, problem.S, problem, rows, dtype)
        return Sums(out, None, S, None)
    if problem.sums_scores:  # one more value, which is 1: its sum is Δ, its state z
        v, state = F.pad(problem.v, (0, 1), value=1.0), _join(problem.S, problem.z)
        out, S = _weigh(problem.q, problem.k, v, state, problem, rows, dtype)
        return Sums(out[..., :-1], out[..., -1:], S[..., :-1], S[..., -1])
    out, S = _weigh(problem.q, problem.k, problem.v, problem.S, problem, rows, dtype)
    ones, z = torch.ones_like(problem.v[..., :1]), None if problem.z is None else problem.z[..., None]
    delta, z = _weigh(problem.delta_q, problem.delta_k, ones, z, problem, rows, dtype)
    return Sums(out, delta, S, z[..., 0])


def _kernel_dtype(problem: Problem) -> torch.dtype:
    """Return bfloat16 if all features and values have it, else float32.

    The numerator before the division by Δ grows with n, so in float16 it would overflow. In float32 nothing of a
    float16 input is lost, not even in TF32, which has as many digits.
    """
    all_bfloat16 = problem.q.dtype == problem.k.dtype == problem.v.dtype == torch.bfloat16
    return torch.bfloat16 if all_bfloat16 else torch.float32


def _join(S: Tensor | None, z: Tensor | None) -> Tensor | None:
    """Return the state of values with a last one, whose state is z; a sum starts from both or from neither."""
    assert (S is None) == (z is None)
    return None if S is None or z is None else torch.cat([S, z[..., None]], -1)


class _Rows(NamedTuple):
    """The order of tokens in the kernels' tensors (B, T, H, d), and the bounds of sequences that do not see each other.

    Without bounds these are (batch, n, heads, d). With bounds all tokens are in one row of sequences, (1, batch · n,
    heads, d), or (1, batch · heads · n, 1, d) if heads forget at different tokens.
    """

    batch: int
    heads: int
    n: int
    apart: bool = False  # heads have bounds of their own
    forgets: Tensor | None = None  # (batch, heads or 1, n): the tokens that forget everything before them
    bounds: Tensor | None = None  # (sequences + 1,)
    first: Tensor | None = None  # the number of the first sequence of each row
    last: Tensor | None = None

    @classmethod
    def of(cls, problem: Problem) -> "_Rows":
        """Find the tokens that forget everything. As a step of -800 in the kernels' float32 sums of log-decays, they
        would cost the weights after them four digits; as the start of a sequence they cost nothing.
        """
        (batch, heads, n), log_decay = problem.q.shape[:3], problem.log_decay
        plain = cls(batch, heads, n)
        if log_decay is None or log_decay.shape[-1] == 1:
            return plain
        forgets = log_decay.detach() <= _VANISHES
        if not forgets.any():
            return plain
        apart = bool((forgets != forgets[:, :1]).any())
        forgets = _repeat_heads(forgets, heads) if apart else forgets[:, :1]
        forgets = forgets.expand(batch, -1, -1)
        starts = torch.cat([torch.ones_like(forgets[..., :1]), forgets[..., 1:]], -1)
        bounds = F.pad(starts.flatten().nonzero()[:, 0], (0, 1), value=starts.numel())
        count = starts.flatten().cumsum(0).view(-1, n) - 1
        return cls(batch, heads, n, apart, forgets, bounds, count[:, 0], count[:, -1])

    def fold(self, x: Tensor) -> Tensor:
        """(batch, heads, n, d) -> (B, T, H, d)."""
        if self.apart:
            return x.reshape(1, -1, 1, x.shape[-1])
        x = x.transpose(1, 2)
        return x if self.bounds is None else x.reshape(1, -1, *x.shape[2:])

    def unfold(self, x: Tensor) -> Tensor:
        """(B, T, H, d) -> (batch, heads, n, d)."""
        if self.apart:
            return x.reshape(self.batch, self.heads, self.n, x.shape[-1])
        return x.reshape(self.batch, self.n, self.heads, x.shape[-1]).transpose(1, 2)

    def fold_state(self, S: Tensor) -> Tensor:
        """(batch, heads, f, e) -> (sequences, H, f, e): each row's first sequence starts from it, unless it forgets."""
        if self.forgets is None or self.bounds is None or self.first is None:
            return S
        kept = torch.where(self.forgets[..., 0, None, None], 0, S)
        kept = kept.reshape(-1, 1, *S.shape[2:]) if self.apart else kept
        states = kept.new_zeros(len(self.bounds) - 1, *kept.shape[1:])
        return states.index_copy(0, self.first, kept)

    def unfold_state(self, states: Tensor) -> Tensor:
        """(sequences, H, f, e) -> (batch, heads, f, e)."""
        if self.last is None:
            return states
        return states.index_select(0, self.last).reshape(self.batch, self.heads, *states.shape[2:])

    def gates(self, log_decay: Tensor | None) -> dict[str, Tensor | None]:
        """Return the kernels' argument for the decay: one number per head if that is all, else one per token."""
        if log_decay is None:
            return {}
        log_decay = _repeat_heads(log_decay, self.heads).float()
        if log_decay.shape[0] == log_decay.shape[2] == 1 and not log_decay.requires_grad:
            return {"g_gamma": log_decay.flatten()}
        if self.forgets is not None:
            log_decay = torch.where(self.forgets, 0, log_decay)
        return {"g": self.fold(log_decay.expand(self.batch, self.heads, self.n)[..., None])[..., 0]}


def _repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat keys, values, states or decays (batch, key heads, ...) for the query heads."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def _weigh(
    q: Tensor, k: Tensor, v: Tensor, S: Tensor | None, problem: Problem, rows: _Rows, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return Σ_s w_ts (q_t·k_s) v_s, (batch, heads, n, e), and the last state, (batch, key heads, f, e), in float32."""
    key_heads, f, e = k.shape[1], k.shape[-1], v.shape[-1]
    q, k, v = (rows.fold(_pad(_repeat_heads(x, rows.heads).to(dtype), -1)) for x in (q, k, v))
    if S is not None:
        S = rows.fold_state(_pad(_pad(_repeat_heads(S, rows.heads).float(), -1), -2))
    out, states = _kernels().chunk_simple_gla(
        q,
        k,
        v,
        **rows.gates(problem.log_decay),
        scale=1.0,
        initial_state=S,
        output_final_state=True,
        cu_seqlens=rows.bounds,
    )
    out, states = _DifferentiableOnce.of(rows.unfold(out)[..., :e].float(), rows.unfold_state(states)[..., :f, :e])
    return out, states[:, :: rows.heads // key_heads]  # alike in a group


def _pad(x: Tensor, axis: int) -> Tensor:
    """Pad an axis with zeros to a multiple of ``_WIDTH``."""
    missing = -x.shape[axis] % _WIDTH
    return F.pad(x, (*(0, 0) * (-1 - axis), 0, missing)) if missing else x


class _DifferentiableOnce(Differentiable):
    """The identity, which refuses to have its gradient differentiated.

    The backward pass of the kernels is not recorded, so a second derivative would silently lack terms.
    """

    @staticmethod
    def forward(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tensors

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        pass

    @staticmethod
    def backward(ctx, *grads: Tensor):
        if torch.is_grad_enabled() or not one_at_a_time(*grads):
            raise LrpeError(
                "The fla engine has first derivatives only, one at a time. For second or batched ones, compute the "
                "sum inside lrpe.engines.use('torch')."
            )
        return grads


@in_full_precision
def fla_step(problem: Problem) -> Sums:
    """Return o, Δ and the next state of one token, in float32."""
    assert problem.S is not None
    out, S = _step(problem.q, problem.k, problem.v, problem.S, problem.log_decay)
    if problem.delta_q is None or problem.delta_k is None:
        return Sums(out, None, S, None)
    assert problem.z is not None
    ones = torch.ones_like(problem.v[..., :1])
    delta, z = _step(problem.delta_q, problem.delta_k, ones, problem.z[..., None], problem.log_decay)
    return Sums(out, delta, S, z[..., 0])


def _step(q: Tensor, k: Tensor, v: Tensor, S: Tensor, log_decay: Tensor | None) -> tuple[Tensor, Tensor]:
    """S ← r S + k vᵀ and o = q S. The queries of a key head follow each other as tokens whose keys are 0."""
    (batch, heads, _, f), key_heads = q.shape, k.shape[1]
    group = heads // key_heads
    queries = q.float().reshape(batch, key_heads, group, f).transpose(1, 2)
    keys, values = (F.pad(x.float().transpose(1, 2), (0, 0, 0, 0, 0, group - 1)) for x in (k, v))
    g = None
    if log_decay is not None:
        g = F.pad(log_decay.float().expand(batch, key_heads, 1).transpose(1, 2), (0, 0, 0, group - 1))
    out, S = _kernels().fused_recurrent_simple_gla(
        queries, keys, values, g, scale=1.0, initial_state=S.float(), output_final_state=True
    )
    out, S = _DifferentiableOnce.of(out.transpose(1, 2).reshape(batch, heads, 1, v.shape[-1]), S)
    return out, S
