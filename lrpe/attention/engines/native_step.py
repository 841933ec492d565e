"""The native step: one token of all heads and rows in one call, with a new state in memory of its own."""

import ctypes
import functools
from collections.abc import Callable
from ctypes import POINTER, Structure, c_double, c_int64, c_void_p

import torch
from torch import Tensor

from lrpe.attention.engines.library import load_library
from lrpe.attention.engines.native_sum import feature_code
from lrpe.attention.engines.one_token import OneToken
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.encodings.householder import Householder
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.errors import LrpeError
from lrpe.precision import in_float64

_DELTA = {None: 0, "plain": 1, "encoded": 2, "given": 3}  # enum Delta of problem.h
_PLAIN_TYPES = (Tensor, torch.nn.Parameter)


class NativeStep(Structure):
    """``lrpe_step`` of step.h, field by field."""

    _fields_ = (
        *((name, c_int64) for name in ("batch", "heads", "key_heads", "f", "e", "delta_width")),
        *((name, c_int64) for name in ("phi", "delta", "divide", "threads")),
        ("floor", c_double),
        *((name, c_int64) for name in ("reflections", "pairs")),
        *((name, c_void_p) for name in ("q", "k", "v", "delta_q", "delta_k", "V", "alpha")),
        *(("alpha_head", c_int64), ("position", c_void_p), ("position_batch", c_int64), ("phase", c_void_p)),
        *((name, c_int64) for name in ("phase_batch", "phase_head", "phase_pair")),
        *(("log_decay", c_void_p), ("decay_batch", c_int64), ("decay_head", c_int64)),
        *((name, c_void_p) for name in ("mask", "S", "z", "S_next", "z_next", "out", "total")),
    )


@functools.cache
def _load() -> Callable[..., int]:
    """Return the kernel; the library is of this version, so that its structure is ours."""
    library = load_library()
    assert isinstance(library, ctypes.CDLL)
    library.lrpe_step_size.restype = c_int64
    assert library.lrpe_step_size() == ctypes.sizeof(NativeStep)
    library.lrpe_step_forward.argtypes = [POINTER(NativeStep)]
    return library.lrpe_step_forward


def declines_token(token: OneToken) -> str | None:
    """Return why the kernel does not take this token, or None."""
    read = [x for x in (token.q, token.k, token.v, token.S, token.z) if x is not None]
    if any(type(x) not in _PLAIN_TYPES for x in read):
        return "it reads plain tensors only, no subclass"
    if not all(x.is_cpu for x in read):
        return f"it runs on the CPU; q is on {token.q.device}"
    odd = next((x.dtype for x in read if x.dtype is not torch.float32), None)
    if odd is not None:
        return f"it computes in float32; got {odd}"
    if feature_code(token.phi) is None:
        return "it has no such feature map"
    return "there is nothing to sum" if token.q.numel() == 0 or token.v.numel() == 0 else None


def native_step(token: OneToken | Problem) -> Sums:
    """Return o (divided by Δ if the token is unencoded), Δ and the next state; the state before is unchanged."""
    q, k, v, S, z = (None if x is None else x.contiguous() for x in (token.q, token.k, token.v, token.S, token.z))
    assert q is not None
    assert k is not None
    assert v is not None
    assert S is not None
    (batch, heads, _, f), key_heads, e = q.shape, k.shape[1], v.shape[3]
    native = NativeStep(batch, heads, key_heads, f, e, 0 if z is None else z.shape[2])
    native.threads = torch.get_num_threads()
    alive = _describe_features(native, token)
    if token.log_decay is not None:
        log_decay = in_float64(token.log_decay)
        alive.append(log_decay)
        native.log_decay = log_decay.data_ptr()
        native.decay_batch, native.decay_head = _stride(log_decay, 0), _stride(log_decay, 1)
    S_next, out = torch.empty_like(S), q.new_empty(batch, heads, 1, e)
    native.q, native.k, native.v = q.data_ptr(), k.data_ptr(), v.data_ptr()
    native.S, native.S_next, native.out = S.data_ptr(), S_next.data_ptr(), out.data_ptr()
    total, z_next = None, None
    if z is not None:
        total, z_next = q.new_empty(batch, heads, 1, 1), torch.empty_like(z)
        native.z, native.z_next, native.total = z.data_ptr(), z_next.data_ptr(), total.data_ptr()
    if _load()(ctypes.byref(native)) != 0:
        raise LrpeError("The native engine ran out of memory. Pass a smaller batch, or use lrpe.engines.use('torch').")
    return Sums(out, total, S_next, z_next)


def _describe_features(native: NativeStep, token: OneToken | Problem) -> list[Tensor]:
    """Set how the kernel finds the features; return the tensors that must live until it has read them."""
    if isinstance(token, OneToken):
        native.phi, native.floor = feature_code(token.phi) or (0, 0.0)
        native.delta, native.divide = _DELTA[token.delta], token.delta is not None
        return [*_describe_encoding(native, token), *_describe_mask(native, token.mask)]
    if token.delta_q is None or token.delta_k is None:
        return []
    if token.sums_scores:
        native.delta = _DELTA["encoded"]
        return []
    delta_q, delta_k = token.delta_q.contiguous(), token.delta_k.contiguous()
    native.delta, native.delta_q, native.delta_k = _DELTA["given"], delta_q.data_ptr(), delta_k.data_ptr()
    return [delta_q, delta_k]


def _describe_mask(native: NativeStep, mask: Tensor | None) -> list[Tensor]:
    if mask is None:
        return []
    mask = mask.contiguous()
    native.mask = mask.data_ptr()
    return [mask]


def _describe_encoding(native: NativeStep, token: OneToken) -> list[Tensor]:
    """Set P and the angles of Λ, whose cosines the kernel computes in double."""
    alive, basis, matrix = [], token.encoding.basis, token.encoding.matrix
    if isinstance(basis, Householder):
        V = basis.v.to(torch.float32).contiguous()
        native.V, native.reflections = V.data_ptr(), V.shape[0]
        alive.append(V)
    assert isinstance(matrix, Orthogonal)
    if matrix.pairs == 0:
        return alive
    alpha, position = matrix.angles.scaled(), token.position.contiguous()
    native.alpha, native.pairs, native.alpha_head = alpha.data_ptr(), matrix.pairs, _stride(alpha, 0)
    native.position, native.position_batch = position.data_ptr(), _stride(position, 0)
    if token.phase is not None:
        phase = token.phase if token.phase.ndim == 4 else token.phase.unsqueeze(-1)
        native.phase = phase.data_ptr()
        native.phase_batch, native.phase_head, native.phase_pair = (_stride(phase, axis) for axis in (0, 1, 3))
        alive.append(phase)
    return [*alive, alpha, position]


def _stride(x: Tensor, axis: int) -> int:
    """Return the stride of an axis, 0 if its size is 1, so that it repeats."""
    return x.stride(axis) if x.shape[axis] > 1 else 0
