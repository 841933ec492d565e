"""The compiled library of the native engine: chosen for this processor, and called through ctypes."""

import ctypes
import functools
from ctypes import POINTER, Structure, c_double, c_int64, c_void_p
from pathlib import Path

import torch
from torch import Tensor

from lrpe.errors import LrpeError
from lrpe.native.build import library_path, processor

SUMS = tuple(f"lrpe_{sees}_{way}" for sees in ("causal", "bidirectional") for way in ("forward", "backward"))


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
        *((name, c_int64) for name in ("reflections", "lambda_", "turned")),
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
        *((name, c_void_p) for name in ("dV", "dU", "dS", "dz", "dlog_decay")),
    )


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
        library.lrpe_problem_size.restype = c_int64
        size = library.lrpe_problem_size()
        for name in SUMS:
            getattr(library, name).argtypes = [POINTER(NativeProblem)]
    except (OSError, AttributeError) as error:
        return f"{path.name} could not be loaded: {error}"
    if size != ctypes.sizeof(NativeProblem):  # an older library beside newer Python
        return f"{path.name} is of another version of lrpe; run python -m lrpe.native.build"
    return library


def call(name: str, problem: NativeProblem) -> None:
    """Call a function of the library. ctypes releases the GIL meanwhile."""
    library = load_library()
    assert isinstance(library, ctypes.CDLL)
    if getattr(library, name)(ctypes.byref(problem)) != 0:
        raise LrpeError("The native engine ran out of memory. Pass a smaller batch, or use lrpe.engines.use('torch').")
