"""The native sum as one differentiable operation: a kernel call forwards, and one backwards."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lrpe.attention.description import Unencoded
from lrpe.attention.engines.library import (
    DELTA,
    LAMBDA,
    PAD,
    NativeProblem,
    StridedTensor,
    call,
    make_turns,
    strides_of,
)
from lrpe.attention.engines.torch_engine import sums_by_torch
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.autograd import Differentiable, one_at_a_time
from lrpe.precision import in_float64

_TENSORS = ("q", "k", "v", "delta_q", "delta_k", "log_decay", "S", "z", "V", "U", "phase", "alpha", "turn", "mask")
_ROWS = ("out", "total", "g", "g_total", "dq", "dk", "dv", "ddelta_q", "ddelta_k")  # fields that have strides


class _Form(NamedTuple):
    """What is not a tensor: the problem without its tensors, and their names."""

    problem: Problem | Unencoded  # its tensors are stale; only the rest is read
    names: tuple[str, ...]
    phi: int  # the kernel's number of φ
    floor: float  # what is added to φ
    delta: str | None
    wants_decay: bool

    @classmethod
    def of(cls, problem: Problem | Unencoded, phi: int, floor: float) -> tuple["_Form", list[Tensor]]:
        named = {name: tensor for name in _TENSORS if (tensor := getattr(problem, name, None)) is not None}
        if isinstance(problem, Unencoded):
            delta = problem.delta
        else:
            delta = None if problem.delta_q is None else "encoded" if problem.sums_scores else "given"
            if delta == "encoded":
                named = {name: x for name, x in named.items() if name not in ("delta_q", "delta_k")}
        empty = problem._replace(**dict.fromkeys(named, None))
        wants = problem.log_decay is not None and problem.log_decay.requires_grad
        return cls(empty, tuple(named), phi, floor, delta, wants), list(named.values())

    @property
    def divides(self) -> bool:
        return isinstance(self.problem, Unencoded) and self.delta is not None

    @property
    def is_summary(self) -> bool:
        """Return whether only the state is wanted, so that the rows of an output may share their memory."""
        return isinstance(self.problem, Unencoded) and self.problem.summary

    @property
    def direction(self) -> str:
        """Return the name of the kernel's functions for this sum."""
        return "causal" if self.problem.causal else "bidirectional"

    @property
    def keeps_sums(self) -> bool:
        """Return whether all queries share S and z, so that backward can read them instead of summing again."""
        return not self.problem.causal and "log_decay" not in self.names

    def restore(self, tensors: Sequence[Tensor]) -> Problem | Unencoded:
        """Return the problem with these tensors."""
        problem = self.problem._replace(**dict(zip(self.names, tensors, strict=True)))
        if isinstance(problem, Problem) and self.delta == "encoded":
            return problem._replace(delta_q=problem.q, delta_k=problem.k)
        return problem


def native_sums(problem: Problem | Unencoded, phi: int, floor: float) -> Sums:
    """Return o (divided by Δ if the problem is unencoded), Δ and, if it is causal, the last state."""
    if isinstance(problem, Unencoded) and problem.phase is not None and problem.alpha is not None:
        turn = make_turns(problem.phase.detach(), problem.alpha.detach().contiguous(), problem.q.shape[3])
        problem = problem._replace(turn=turn)
    form, tensors = _Form.of(problem, phi, floor)
    out, S, delta, z = _NativeSum.of(form, *tensors)
    return Sums(out, delta, S, z) if problem.causal else Sums(out, delta)


class _NativeSum(Differentiable):
    """The sums by the kernel. Backward computes features and states again, so only the inputs are kept."""

    @staticmethod
    def forward(form: _Form, *tensors: Tensor):
        named = _Inputs(form, tensors)
        q, v = named["q"], named["v"]
        out, total = _empty_output(q, v), q.new_empty(*q.shape[:3], 1) if form.delta else None
        if form.is_summary:
            out, total = _shared_rows(q, v, 0.0), None if total is None else _shared_rows(q, total, 1.0)
        S, z = _empty_states(named) if form.problem.causal or form.keeps_sums else (None, None)
        call(f"lrpe_{form.direction}_forward", named.describe(out=out, total=total, S_last=S, z_last=z))
        return out, S, total, z

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        form, *tensors = inputs
        ctx.form, ctx.count = form, len(tensors)
        out, S, total, z = output
        kept = {"out": out, "total": total} if form.divides and not form.is_summary else {}
        inner = [total] if form.divides else []  # Δ has gone into the quotient
        if form.keeps_sums:
            kept |= {"S": S, "z": z}
            inner += [S, z]
        ctx.mark_non_differentiable(*(x for x in inner if x is not None))
        ctx.kept = tuple(name for name, x in kept.items() if x is not None)
        ctx.save_for_backward(*tensors, *(kept[name] for name in ctx.kept))
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, *grads: Any):
        saved = ctx.saved_tensors  # read once: under checkpointing a second read is an error
        tensors, kept = saved[: ctx.count], dict(zip(ctx.kept, saved[ctx.count :], strict=True))
        if all(g is None for g in grads):
            return (None,) * (1 + ctx.count)
        # A second derivative or a batched gradient needs operations that torch knows.
        if torch.is_grad_enabled() or not one_at_a_time(*(g for g in grads if g is not None)):
            return None, *_gradients_by_torch(ctx.form, tensors, grads, ctx.needs_input_grad[1:])
        return None, *_gradients(ctx.form, tensors, kept, grads, ctx.needs_input_grad[1:])


class _Inputs(dict[str, Tensor]):
    """The tensors of a problem by name, as the kernel reads them; it keeps copies alive until the kernel returns."""

    def __init__(self, form: _Form, tensors: Sequence[Tensor]):
        super().__init__(zip(form.names, tensors, strict=True))
        self.form, self.alive = form, []

    def describe(self, **others: Tensor | None) -> NativeProblem:
        """Return the kernel's description; ``others`` are the tensors that it writes, and what backward adds."""
        q, k, v = self["q"], self["k"], self["v"]
        native = NativeProblem(
            *(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2]),
            *(q.shape[3], self.feature_width, v.shape[3], self.delta_width),
            *(self.form.phi, DELTA[self.form.delta], self.form.divides, torch.get_num_threads(), self.form.floor),
            self["V"].shape[0] if "V" in self else 0,
        )
        for name in ("q", "k", "v", "delta_q", "delta_k"):
            if name in self:
                setattr(native, name, StridedTensor.of(self._keep(_rows_in_memory(self[name]))))
        self._describe_lambda(native)
        self._describe_decay_and_mask(native)
        for name in ("S", "z"):
            if name in self:
                setattr(native, name, self._keep(self[name].contiguous()).data_ptr())
        for name in ("V", "U"):
            if name in self:
                padded = F.pad(self[name], (0, -q.shape[3] % PAD)).contiguous()
                setattr(native, name, self._keep(padded).data_ptr())
        for name, tensor in others.items():
            if tensor is not None:
                setattr(native, name, StridedTensor.of(tensor) if name in _ROWS else tensor.data_ptr())
        return native

    @property
    def feature_width(self) -> int:
        problem = self.form.problem
        return problem.encoding.feature_dim if isinstance(problem, Unencoded) else self["q"].shape[3]

    @property
    def delta_width(self) -> int:
        """Return the width of the features that Δ is summed from, 0 if there is no Δ."""
        widths = {"plain": self["q"].shape[3], "encoded": self.feature_width, None: 0}
        return self["delta_k"].shape[3] if self.form.delta == "given" else widths[self.form.delta]

    def _describe_lambda(self, native: NativeProblem) -> None:
        if "turn" not in self:
            return
        table = self["turn"] if self["turn"].is_floating_point() else self["turn"].to(torch.int32)
        native.turn = StridedTensor.of(self._keep(_rows_in_memory(table)))
        assert isinstance(self.form.problem, Unencoded)
        native.lambda_ = LAMBDA[type(self.form.problem.encoding.matrix)]
        if "phase" in self:
            phase, alpha = self["phase"], self._keep(self["alpha"].contiguous())
            native.phase, native.alpha, native.pairs = phase.data_ptr(), alpha.data_ptr(), alpha.shape[2]
            native.phase_batch, native.phase_head, native.phase_row, native.phase_pair = strides_of(phase)
            native.alpha_head = strides_of(alpha)[0]

    def _describe_decay_and_mask(self, native: NativeProblem) -> None:
        if "log_decay" in self:
            log_decay = self._keep(in_float64(self["log_decay"].detach()))
            native.log_decay = log_decay.data_ptr()
            native.decay_batch, native.decay_head, native.decay_row = strides_of(log_decay)
        if "mask" in self:
            mask = self._keep(self["mask"].expand(self["q"].shape[0], -1))
            native.mask, (native.mask_batch, native.mask_row) = mask.data_ptr(), mask.stride()

    def _keep(self, tensor: Tensor) -> Tensor:
        self.alive.append(tensor)
        return tensor


def _rows_in_memory(x: Tensor) -> Tensor:
    """Return x, or a copy if the numbers of a row are not neighbours in memory."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _empty_output(q: Tensor, v: Tensor) -> Tensor:
    """Return memory for (batch, heads, n, e), with heads after tokens if those of q are, as projections have them."""
    batch, heads, n, _ = q.shape
    if q.stride(1) < q.stride(2):
        return v.new_empty(batch, n, heads, v.shape[-1]).transpose(1, 2)
    return v.new_empty(batch, heads, n, v.shape[-1])


def _shared_rows(q: Tensor, like: Tensor, value: float) -> Tensor:
    """Return (batch, heads, n, width of ``like``) with one row of memory per head: heads are summed one by one."""
    batch, heads, n, _ = q.shape
    return like.new_full((batch, heads, 1, like.shape[-1]), value).expand(-1, -1, n, -1)


def _empty_states(named: _Inputs) -> tuple[Tensor, Tensor | None]:
    k, v = named["k"], named["v"]
    S = v.new_empty(*k.shape[:2], named.feature_width, v.shape[-1])
    return S, k.new_empty(*k.shape[:2], named.delta_width) if named.form.delta else None


def _empty_rows(x: Tensor) -> Tensor:
    """Return memory for the gradient of x, in x's layout if its rows are whole and do not overlap."""
    like = torch.empty_like(x)
    return like if like.stride(-1) == 1 else torch.empty_like(x, memory_format=torch.contiguous_format)


def _gradients(form: _Form, tensors: Sequence[Tensor], kept: dict[str, Tensor], grads: Sequence[Any], wanted):
    """Return the gradient of each tensor by the kernel."""
    named = _Inputs(form, tensors)
    wants = dict(zip(form.names, wanted, strict=True))
    g_out, g_S, g_total, g_z = (None if g is None else g.contiguous() if g.ndim != 4 else g for g in grads)
    if form.is_summary:  # no query has a gradient
        g_out, wants["q"] = _shared_rows(named["q"], named["v"], 0.0), False
        kept = {"out": g_out, "total": _shared_rows(named["q"], named["v"][..., :1], 1.0)} if form.divides else {}
    g_out = _empty_output(named["q"], named["v"]).zero_() if g_out is None else _rows_in_memory(g_out)
    g_S = None if g_S is None else g_S.contiguous()
    g_total = None if g_total is None or form.divides else g_total.contiguous()
    found = {"q": _shared_rows(named["q"], named["q"], 0.0) if form.is_summary else _empty_rows(named["q"])}
    found |= {name: _empty_rows(named[name]) for name in ("k", "v", "delta_q", "delta_k") if name in named}
    found |= {name: torch.empty_like(named[name]).contiguous() for name in ("S", "z") if name in named}
    if form.wants_decay:
        found["log_decay"] = named["k"].new_empty(named["k"].shape[:3], dtype=torch.float64)
    if wants.get("phase"):
        phase = named["phase"]
        found["phase"] = phase.new_zeros(*named["k"].shape[:3], phase.shape[3])
    threads = torch.get_num_threads()
    for name in ("alpha", "turn", "V", "U"):
        if wants.get(name) or (name in ("V", "U") and (wants.get("V") or wants.get("U"))):
            found[name] = _per_thread_zeros(named[name], threads, padded=name in ("V", "U"))
    native = named.describe(
        g=g_out, g_S=g_S, g_total=g_total, g_z=g_z, **kept, **{f"d{name}": x for name, x in found.items()}
    )
    if "turn" in found:
        native.dturn_batch, native.dturn_head, native.dturn_row, _ = strides_of(found["turn"][0])
        native.dturn_size = found["turn"][0].numel()
    if "phase" in found:
        native.dphase_batch, native.dphase_head, native.dphase_row, _ = found["phase"].stride()
    if "alpha" in found:
        native.dalpha_size = found["alpha"][0].numel()
    call(f"lrpe_{form.direction}_backward", native)
    return [_finish(name, found.get(name), named[name]) if wants[name] else None for name in form.names]


def _per_thread_zeros(x: Tensor, threads: int, padded: bool) -> Tensor:
    """Return zeros of x's shape for each thread to add to, as threads share the tensors of the encoding."""
    width = x.shape[-1] + (-x.shape[-1] % PAD if padded else 0)
    return x.new_zeros(threads, *x.shape[:-1], width)


def _finish(name: str, gradient: Tensor | None, x: Tensor) -> Tensor | None:
    """Add up what threads and tokens contributed, and return the gradient in the shape and dtype of x."""
    if gradient is None:
        return None
    if name in ("alpha", "turn", "V", "U"):
        return (gradient[0] if len(gradient) == 1 else gradient.sum(0))[..., : x.shape[-1]]
    if name in ("log_decay", "phase"):
        return gradient.sum_to_size(x.shape).to(x)
    return gradient


def _gradients_by_torch(form: _Form, tensors: Sequence[Tensor], grads: Sequence[Any], wanted: Sequence[bool]):
    """Return the gradients through torch's own operations, which can be differentiated again."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # view_as: if k was computed from q, the gradient of q must not include the path through k.
        inputs = [x.view_as(x) if x.requires_grad else x for x in tensors]
        problem = form.restore(inputs)
        sums = sums_by_torch(problem)
    solution = (sums.out, sums.S, None if form.divides else sums.delta, sums.z)
    pairs = [(x, g) for x, g in zip(solution, grads, strict=True) if x is not None and g is not None]
    asked = [x for x, wants in zip(inputs, wanted, strict=True) if wants]
    results = iter(
        torch.autograd.grad([x for x, _ in pairs], asked, [g for _, g in pairs], create_graph=again, allow_unused=True)
    )
    return [next(results) if wants else None for wants in wanted]
