"""The native engine: sums of float32 on a CPU, by a compiled kernel that keeps each chunk in the cache."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from lrpe.attention.description import OneToken, Unencoded, is_one_token
from lrpe.attention.engines.library import DELTA, MOST_REFLECTIONS, NativeStep, call, load_library
from lrpe.attention.engines.native_sum import native_sums
from lrpe.attention.feature_map import elu_plus_one, identity, relu
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.autograd import needs_gradient, only_torch_operations
from lrpe.encodings.angles import Angles
from lrpe.encodings.basis import Householder
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.precision import in_dtype, in_float64

_PHI = {identity: 0, elu_plus_one: 1, relu: 2, F.softplus: 3, F.silu: 4}  # enum Phi of problem.h
_PLAIN_TYPES = (Tensor, torch.nn.Parameter)


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
        features = feature_code(problem.phi) if isinstance(problem, Unencoded) else None
        return native_sums(problem, *(features or (_PHI[identity], 0.0)))  # given features need no φ


def _declines_tensors(problem: Problem | Unencoded) -> str | None:
    tensors = [x for x in problem if isinstance(x, Tensor)]
    if any(type(x) not in (Tensor, torch.nn.Parameter) for x in tensors):
        return "it reads plain tensors only, no subclass"
    if any(x.device.type != "cpu" for x in tensors):
        return f"it runs on the CPU; q is on {problem.q.device}"
    others = [getattr(problem, name, None) for name in ("log_decay", "mask", "phase", "alpha", "turn")]
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


def feature_code(phi: Callable[[Tensor], Tensor]) -> tuple[int, float] | None:
    """Return the kernel's number of a feature map and what is added to it, or None if it has no such map."""
    if isinstance(phi, partial) and phi.func is relu and not phi.args and set(phi.keywords) <= {"floor"}:
        return _PHI[relu], phi.keywords.get("floor", 0.0)
    code = _PHI.get(phi)
    return None if code is None else (code, 0.0)


def declines_token(token: OneToken) -> str | None:
    """Return why the kernel does not take this token, or None."""
    for x in (token.q, token.k, token.v, token.S, token.z):
        if x is None:
            continue
        if type(x) not in _PLAIN_TYPES:
            return "it reads plain tensors only, no subclass"
        if not x.is_cpu:
            return f"it runs on the CPU; q is on {token.q.device}"
        if x.dtype is not torch.float32:
            return f"it computes in float32; got {x.dtype}"
    if feature_code(token.phi) is None:
        return "it has no such feature map"
    return "there is nothing to sum" if token.q.numel() == 0 or token.v.numel() == 0 else None


def native_step(token: OneToken | Problem) -> Sums:
    """Return o (divided by Δ if the token is unencoded), Δ and the next state; the state before is unchanged."""
    assert token.S is not None
    q, k, v, S = token.q.contiguous(), token.k.contiguous(), token.v.contiguous(), token.S.contiguous()
    z = None if token.z is None else token.z.contiguous()
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
    call("lrpe_step_forward", native)
    return Sums(out, total, S_next, z_next)


def _describe_features(native: NativeStep, token: OneToken | Problem) -> list[Tensor]:
    """Set how the kernel finds the features; return the tensors that must live until it has read them."""
    if isinstance(token, OneToken):
        native.phi, native.floor = feature_code(token.phi) or (0, 0.0)
        native.delta, native.divide = DELTA[token.delta], token.delta is not None
        return [*_describe_encoding(native, token), *_describe_mask(native, token.mask)]
    if token.delta_q is None or token.delta_k is None:
        return []
    if token.sums_scores:
        native.delta = DELTA["encoded"]
        return []
    delta_q, delta_k = token.delta_q.contiguous(), token.delta_k.contiguous()
    native.delta, native.delta_q, native.delta_k = DELTA["given"], delta_q.data_ptr(), delta_k.data_ptr()
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
        V = in_dtype(basis.v, torch.float32).contiguous()
        native.V, native.reflections = V.data_ptr(), V.shape[0]
        alive.append(V)
    assert isinstance(matrix, Orthogonal)
    if matrix.pairs == 0:
        return alive
    alive += _describe_angles(native, matrix.angles)
    position = token.position.contiguous()
    native.pairs = matrix.pairs
    native.position, native.position_batch = position.data_ptr(), _stride(position, 0)
    if token.phase is not None:
        phase = token.phase if token.phase.ndim == 4 else token.phase.unsqueeze(-1)
        native.phase = phase.data_ptr()
        native.phase_batch, native.phase_head, native.phase_pair = (_stride(phase, axis) for axis in (0, 1, 3))
        alive.append(phase)
    return [*alive, position]


def _describe_angles(native: NativeStep, angles: Angles) -> list[Tensor]:
    """Set α: as start · exp(log_alpha) where the angles are learned, which for one token saves four operations."""
    log_alpha = angles.log_alpha if angles.learned and angles.scaling is None else None
    if log_alpha is None or log_alpha.dtype is not torch.float32 or angles.start.dtype is not torch.float64:
        alpha = angles.scaled()
        native.alpha, native.alpha_head = alpha.data_ptr(), _stride(alpha, 0)
        return [alpha]
    start, log_alpha = angles.start.contiguous(), log_alpha.contiguous()
    native.alpha, native.log_alpha = start.data_ptr(), log_alpha.data_ptr()
    native.alpha_head = angles.count if start.ndim == 2 and len(start) > 1 else 0
    return [start, log_alpha]


def _stride(x: Tensor, axis: int) -> int:
    """Return the stride of an axis, 0 if its size is 1, so that it repeats."""
    return x.stride(axis) if x.shape[axis] > 1 else 0
