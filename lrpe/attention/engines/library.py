"""The compiled library of the native engine: its structures, the file for this processor, and its shorter functions."""

import ctypes
import functools
from collections.abc import Callable
from ctypes import POINTER, Structure, c_double, c_int64, c_void_p
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Parameter

from lrpe.autograd import only_torch_operations
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.encodings.permutation import Permutation
from lrpe.encodings.unitary import Unitary
from lrpe.errors import LrpeError
from lrpe.native.build import library_path, processor

LAMBDA = {Orthogonal: 1, Unitary: 2, Permutation: 3}  # enum Lambda
DELTA = {None: 0, "plain": 1, "encoded": 2, "given": 3}  # enum Delta
MOST_REFLECTIONS = 8  # MOST of features.h
PAD = 16  # PAD of vectors.h
_MOST_ROWS = 8  # with more, torch's product is as fast: it reads the weights once for all of them
_MOST_THREADS = 2  # a product is too short to start threads for it; torch, whose threads wait, is faster with more


class StridedTensor(Structure):
    """``lrpe::Tensor`` of problem.h: a pointer, and the strides of batch, heads and rows; equal sizes of 1 repeat."""

    _fields_ = (("p", c_void_p), ("batch", c_int64), ("head", c_int64), ("row", c_int64))

    @classmethod
    def of(cls, x: Tensor) -> "StridedTensor":
        strides = (0 if size == 1 else stride for size, stride in zip(x.shape[:3], x.stride()[:3], strict=True))
        return cls(x.data_ptr(), *strides)


class NativeProblem(Structure):
    """``lrpe_problem`` of problem.h, field by field."""

    _fields_ = (
        *((name, c_int64) for name in ("batch", "heads", "key_heads", "n", "m", "d", "f", "e", "delta_width")),
        *((name, c_int64) for name in ("phi", "delta", "divide", "threads")),
        ("floor", c_double),
        *((name, c_int64) for name in ("reflections", "lambda_")),
        *((name, StridedTensor) for name in ("q", "k", "v", "delta_q", "delta_k", "turn", "out")),
        ("log_decay", c_void_p),
        *((name, c_int64) for name in ("decay_batch", "decay_head", "decay_row")),
        ("mask", c_void_p),
        *((name, c_int64) for name in ("mask_batch", "mask_row")),
        *((name, c_void_p) for name in ("V", "U", "S", "z", "S_last", "z_last")),
        *((name, StridedTensor) for name in ("total", "g", "g_total")),
        *((name, c_void_p) for name in ("g_S", "g_z")),
        *((name, StridedTensor) for name in ("dq", "dk", "dv", "ddelta_q", "ddelta_k")),
        ("dturn", c_void_p),
        *((name, c_int64) for name in ("dturn_batch", "dturn_head", "dturn_row", "dturn_size")),
        *((name, c_void_p) for name in ("phase", "alpha")),
        *((name, c_int64) for name in ("phase_batch", "phase_head", "phase_row", "phase_pair", "alpha_head", "pairs")),
        *(("dphase", c_void_p), ("dphase_batch", c_int64), ("dphase_head", c_int64), ("dphase_row", c_int64)),
        *(("dalpha", c_void_p), ("dalpha_size", c_int64)),
        *((name, c_void_p) for name in ("dV", "dU", "dS", "dz", "dlog_decay")),
    )


class NativeStep(Structure):
    """``lrpe_step`` of step.h, field by field."""

    _fields_ = (
        *((name, c_int64) for name in ("batch", "heads", "key_heads", "f", "e", "delta_width")),
        *((name, c_int64) for name in ("phi", "delta", "divide", "threads")),
        ("floor", c_double),
        *((name, c_int64) for name in ("reflections", "pairs")),
        *((name, c_void_p) for name in ("q", "k", "v", "delta_q", "delta_k", "V", "alpha", "log_alpha")),
        *(("alpha_head", c_int64), ("position", c_void_p), ("position_batch", c_int64), ("phase", c_void_p)),
        *((name, c_int64) for name in ("phase_batch", "phase_head", "phase_pair")),
        *(("log_decay", c_void_p), ("decay_batch", c_int64), ("decay_head", c_int64)),
        *((name, c_void_p) for name in ("mask", "S", "z", "S_next", "z_next", "out", "total")),
    )


class NativeTurns(Structure):
    """``lrpe_turns`` of turn.h, field by field."""

    _fields_ = (
        *((name, c_int64) for name in ("batch", "heads", "n", "pairs", "width", "threads")),
        ("phase", c_void_p),
        *((name, c_int64) for name in ("phase_batch", "phase_head", "phase_row", "phase_pair")),
        *(("alpha", c_void_p), ("alpha_head", c_int64), ("to", c_void_p)),
    )


class StridedRows(Structure):
    """``lrpe::Rows`` of convolution.h: a pointer, and the strides of batch and rows."""

    _fields_ = (("p", c_void_p), ("batch", c_int64), ("row", c_int64))

    @classmethod
    def of(cls, x: Tensor) -> "StridedRows":
        return cls(x.data_ptr(), *x.stride()[:2])


class NativeConvolution(Structure):
    """``lrpe_convolution`` of convolution.h, field by field."""

    _fields_ = (
        *((name, c_int64) for name in ("batch", "n", "channels", "kernel", "before", "threads")),
        *(("x", StridedRows), ("window", StridedRows), ("w", c_void_p), ("y", c_void_p), ("g", StridedRows)),
        *((name, c_void_p) for name in ("dx", "dwindow", "dw")),
        ("piece", c_int64),
    )


# the functions that take each structure, and before them the one that returns its size
_FUNCTIONS: dict[type[Structure], tuple[str, ...]] = {
    NativeProblem: (
        *("lrpe_problem_size", "lrpe_causal_forward", "lrpe_causal_backward"),
        *("lrpe_bidirectional_forward", "lrpe_bidirectional_backward"),
    ),
    NativeStep: ("lrpe_step_size", "lrpe_step_forward"),
    NativeTurns: ("lrpe_turns_size", "lrpe_turns_forward"),
    NativeConvolution: ("lrpe_convolution_size", "lrpe_convolution_forward", "lrpe_convolution_backward"),
}


@functools.cache
def load_library() -> ctypes.CDLL | str:
    """Return the library for this processor, or the reason why there is none."""
    target = _choose_target()
    if target is None:
        return f"it needs AVX2 with FMA, or NEON; this processor ({processor()}) has neither"
    path = library_path(target)
    if not path.exists():
        return f"{path.name} was not built; with a C++ compiler, install lrpe again or run python -m lrpe.native.build"
    return _open(path)


def find_library() -> Path | None:
    """Return the file of the library for this processor, whether it can be loaded or not, or None if there is none."""
    target = _choose_target()
    path = None if target is None else library_path(target)
    return path if path is not None and path.exists() else None


def _choose_target() -> str | None:
    """Return the best instruction set that this processor has, as torch reports it, and a library exists for."""
    if processor() == "aarch64":
        return "aarch64"
    sets = {"AVX512": ("x86-64-v4", "x86-64-v3"), "AVX2": ("x86-64-v3",)}
    wanted = sets.get(torch.backends.cpu.get_cpu_capability(), ()) if processor() == "x86_64" else ()
    return next((target for target in wanted if library_path(target).exists()), wanted[-1] if wanted else None)


def _open(path: Path) -> ctypes.CDLL | str:
    try:
        library = ctypes.CDLL(str(path))
        sizes = {structure: _declare(library, structure, *names) for structure, names in _FUNCTIONS.items()}
    except (OSError, AttributeError) as error:
        return f"{path.name} could not be loaded: {error}"
    if any(size != ctypes.sizeof(structure) for structure, size in sizes.items()):  # an older library
        return f"{path.name} is of another version of lrpe; run python -m lrpe.native.build"
    return library


def _declare(library: ctypes.CDLL, structure: type[Structure], size: str, *functions: str) -> int:
    """Declare the functions that take a structure, and return the size that the library gives it."""
    for name in functions:
        getattr(library, name).argtypes = [POINTER(structure)]
    getattr(library, size).restype = c_int64
    return getattr(library, size)()


def call(name: str, structure: Structure) -> None:
    """Call a function of the library. ctypes releases the GIL meanwhile."""
    library = load_library()
    assert isinstance(library, ctypes.CDLL)
    if getattr(library, name)(ctypes.byref(structure)) != 0:
        raise LrpeError("The native engine ran out of memory. Pass a smaller batch, or use lrpe.engines.use('torch').")


def make_turns(phase: Tensor, alpha: Tensor, dim: int) -> Tensor:
    """Return cos and sin of p α by turns, without a gradient, and 1 and 0 for features that stay.

    Args:
        phase: p in float64, (batch or 1, heads or 1, n, 1 or pairs).
        alpha: α in float64, (1 or heads, 1, pairs), contiguous.
        dim: the number of features.

    Returns:
        The table in float32, of the joint shape of p and α with rows of ``dim`` numbers, padded to whole vectors.
    """
    batch, heads, n = phase.shape[0], max(phase.shape[1], alpha.shape[0]), phase.shape[2]
    width = dim + -dim % PAD
    table = phase.new_empty(batch, heads, n, width, dtype=torch.float32)
    turns = NativeTurns(batch, heads, n, alpha.shape[-1], width, torch.get_num_threads(), phase.data_ptr())
    turns.phase_batch, turns.phase_head, turns.phase_row, turns.phase_pair = strides_of(phase)
    turns.alpha, turns.alpha_head, turns.to = alpha.data_ptr(), strides_of(alpha)[0], table.data_ptr()
    call("lrpe_turns_forward", turns)
    return table


def strides_of(x: Tensor) -> list[int]:
    """Return the strides of x, 0 for an axis of size 1, so that it repeats."""
    return [0 if size == 1 else stride for size, stride in zip(x.shape, x.stride(), strict=True)]


@functools.cache
def _load_product() -> Callable[..., int] | None:
    """Return the kernel, or None if there is no library for this machine."""
    library = load_library()
    if not isinstance(library, ctypes.CDLL):
        return None
    library.lrpe_product.argtypes = [c_void_p] * 4 + [c_int64] * 4
    return library.lrpe_product


def can_multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether the kernel can compute x Wᵀ + b, without a gradient: a few rows of float32 on a CPU."""
    if only_torch_operations():  # first: what follows would break a graph, or tie it to the number of rows
        return False
    if not (type(x) is Tensor and type(weight) is Parameter and (bias is None or type(bias) is Parameter)):
        return False
    width = weight.shape[-1]
    if x.shape[-1] != width or not 0 < x.numel() <= _MOST_ROWS * width:
        return False
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return False
    if not (x.dtype is weight.dtype is torch.float32 and x.is_cpu and weight.is_cpu):
        return False
    if bias is not None and not (bias.dtype is torch.float32 and bias.is_cpu):
        return False
    few_threads = torch.get_num_threads() <= _MOST_THREADS
    return few_threads and not torch.is_autocast_enabled("cpu") and _load_product() is not None


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x Wᵀ + b; (..., width) -> (..., outputs). A row's result does not depend on the other rows of the call."""
    kernel = _load_product()
    assert kernel is not None
    x, weight = x.contiguous(), weight.contiguous()
    outputs, width = weight.shape
    y = x.new_empty(*x.shape[:-1], outputs)
    bias = None if bias is None else bias.contiguous()
    pointers = x.data_ptr(), weight.data_ptr(), None if bias is None else bias.data_ptr(), y.data_ptr()
    if kernel(*pointers, x.numel() // width, width, outputs, torch.get_num_threads()) != 0:
        raise LrpeError("The native engine ran out of memory. Use lrpe.engines.use('torch').")
    return y
