"""The causal sums as one differentiable operation: eager, compiled, exported, and under torch.func."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lrpe.attention.sums.chunked import sum_backward, sum_forward, sum_out_of_place
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.autograd import Differentiable, eager
from lrpe.errors import LrpeError
from lrpe.precision import compute_dtype


def causal_sums(problem: Problem) -> Sums:
    """Return o, Δ and the last state of a causal problem, in time and memory linear in n."""
    if torch.compiler.is_exporting():
        return sum_out_of_place(problem)
    if problem.log_decay is None and problem.delta_q is not None:  # Δ is summed with weights: r = 1
        problem = problem._replace(log_decay=problem.k.new_zeros(1, 1, 1, dtype=torch.float32))
    form, tensors = _Form.of(problem)
    compiling = torch.compiler.is_compiling()
    return _to_sums(_causal_sum_op(tensors, *form) if compiling else _CausalSum.of(form, *tensors))


def _to_sums(tensors: Sequence[Tensor]) -> Sums:
    """Return o, S and, if there is a Δ, Δ and z by name, or their gradients."""
    out, S, *of_delta = tensors
    return Sums(out, of_delta[0], S, of_delta[1]) if of_delta else Sums(out, None, S, None)


_TENSORS = ("q", "k", "v", "delta_q", "delta_k", "log_decay", "S", "z")  # the tensors of a Problem


class _Form(NamedTuple):
    """The part of a Problem that is not a tensor, so that an operation can take its tensors as a list."""

    names: str  # the tensors that it has, separated by spaces
    chunk: int
    of_scores: bool  # whether Δ sums the scores themselves, so that it has no features of its own
    wants_decay: bool  # whether the gradient of the log-decay is wanted, which takes time

    @classmethod
    def of(cls, problem: Problem) -> tuple["_Form", list[Tensor]]:
        of_scores = problem.delta_q is not None and problem.sums_scores
        if of_scores:
            problem = problem._replace(delta_q=None, delta_k=None)
        named = {name: tensor for name in _TENSORS if (tensor := getattr(problem, name)) is not None}
        # Under a transform of torch.func a tensor does not tell whether it has a gradient.
        wants = problem.log_decay is not None and (problem.log_decay.requires_grad or not eager())
        return cls(" ".join(named), problem.chunk, of_scores, wants), list(named.values())

    def problem(self, tensors: Sequence[Tensor]) -> Problem:
        named: dict[str, Any] = dict(zip(self.names.split(), tensors, strict=True))
        return Problem(**named, chunk=self.chunk)

    @property
    def outputs(self) -> int:
        """Return the number of tensors in the solution: o and S, and Δ and z if there is a Δ."""
        return 4 if self.of_scores or "delta_q" in self.names else 2


def _solve(form: _Form, tensors: Sequence[Tensor], how: Callable[[Problem], Sums] = sum_forward) -> tuple[Tensor, ...]:
    """Return o, S and, if there is a Δ, Δ and z."""
    problem = form.problem(tensors)
    if form.of_scores:
        problem = _with_ones(problem)
    out, delta, S, z = how(problem)
    assert S is not None
    if form.of_scores:
        return out[..., :-1], S[..., :-1], out[..., -1:], S[..., -1]
    return (out, S) if delta is None or z is None else (out, S, delta, z)


def _differentiate(form: _Form, grads: Sequence[Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradient of each tensor, given those of the solution."""
    problem, g = form.problem(tensors), _to_sums(grads)
    if form.of_scores:
        out, S, delta, z = grads
        g = Sums(torch.cat([out, delta], -1), None, torch.cat([S, z[..., None]], -1), None)
        problem = _with_ones(problem)
    gradients = sum_backward(problem, g, form.wants_decay)
    if form.of_scores:
        v, S = gradients["v"], gradients["S"]
        gradients |= {"v": v[..., :-1], "S": S[..., :-1], "z": S[..., -1]}
    named = zip(form.names.split(), tensors, strict=True)
    return [gradients[name].to(x.dtype) if name in gradients else torch.zeros_like(x) for name, x in named]


def _with_ones(problem: Problem) -> Problem:
    """Return the problem whose last value is 1: the numerator of that value is the sum of the scores, its state z."""
    S = problem.S
    if S is not None and problem.z is not None:
        S = torch.cat([S, problem.z[..., None]], -1)
    return problem._replace(v=torch.nn.functional.pad(problem.v, (0, 1), value=1.0), S=S, z=None)


class _KeepsInputs(Differentiable):
    """A function of a form and its tensors that keeps only these; autograd would keep all scores and states."""

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.form, *tensors = inputs
        ctx.save_for_backward(*tensors)


class _CausalSum(_KeepsInputs):
    """The causal sums."""

    @staticmethod
    def forward(form: _Form, *tensors: Tensor) -> tuple[Tensor, ...]:
        return _solve(form, tensors)

    @staticmethod
    def backward(ctx, *grads: Any):
        return None, *_CausalSumGradient.of(ctx.form, *grads, *ctx.saved_tensors)

    @staticmethod
    def vmap(info, in_dims, *inputs: Any):
        return _fold_vmap(_CausalSum.apply, info.batch_size, in_dims, inputs, first=0)


class _CausalSumGradient(_KeepsInputs):
    """The gradients of the causal sums, which can be differentiated once more."""

    @staticmethod
    def forward(form: _Form, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(_differentiate(form, tensors[: form.outputs], tensors[form.outputs :]))

    @staticmethod
    def backward(ctx, *grads: Any):
        return None, *_CausalSumCurvature.of(ctx.form, *ctx.saved_tensors, *grads)

    @staticmethod
    def vmap(info, in_dims, *inputs: Any):
        return _fold_vmap(_CausalSumGradient.apply, info.batch_size, in_dims, inputs, first=inputs[0].outputs)


class _CausalSumCurvature(Differentiable):
    """The second derivatives, computed by torch.func from the out-of-place sums; they have no derivative."""

    @staticmethod
    def forward(form: _Form, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(form.names.split())
        inputs, directions = tensors[:-count], tensors[-count:]

        def gradients(*values: Tensor):
            grads, point = values[: form.outputs], values[form.outputs :]
            return torch.func.vjp(lambda *x: _solve(form, x, sum_out_of_place), *point)[1](grads)

        return torch.func.vjp(gradients, *inputs)[1](directions)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        pass  # nothing to save: backward only raises

    @staticmethod
    def backward(ctx, *grads: Any):
        raise LrpeError("The causal sum has only first and second derivatives. Use summation=Quadratic() for others.")

    @staticmethod
    def vmap(info, in_dims, *inputs: Any):
        return _fold_vmap(_CausalSumCurvature.apply, info.batch_size, in_dims, inputs, first=inputs[0].outputs)


def _fold_vmap(apply: Callable[..., Any], size: int, in_dims, inputs: Sequence[Any], first: int):
    """Fold vmap's axis into the batch axis, with which every tensor begins; q is the tensor number ``first``."""
    (form, *tensors), dims = inputs, in_dims[1:]
    batch = tensors[first].shape[0] if dims[first] is None else tensors[first].movedim(dims[first], 0).shape[1]

    def fold(x: Tensor, dim: int | None) -> Tensor:
        x = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
        return x.expand(size, batch, *x.shape[2:]).flatten(0, 1)

    outputs = apply(form, *(fold(x, dim) for x, dim in zip(tensors, dims, strict=True)))
    return tuple(output.unflatten(0, (size, batch)) for output in outputs), (0,) * len(outputs)


@torch.library.custom_op("lrpe::causal_sum", mutates_args=())
def _causal_sum_op(tensors: list[Tensor], names: str, chunk: int, of_scores: bool, wants_decay: bool) -> list[Tensor]:
    """The sums as one node of a compiled graph, so that the graph does not depend on the number of chunks."""
    # The fake kernel below promises contiguous tensors.
    return [x.contiguous() for x in _solve(_Form(names, chunk, of_scores, wants_decay), tensors)]


@_causal_sum_op.register_fake
def _(tensors, names, chunk, of_scores, wants_decay):
    problem = _Form(names, chunk, of_scores, wants_decay).problem(tensors)
    q, k, dtype = problem.q, problem.k, compute_dtype(problem.q.dtype)
    shapes = [(*q.shape[:3], problem.v.shape[-1]), (*k.shape[:2], k.shape[-1], problem.v.shape[-1])]
    summed = k if of_scores else problem.delta_k
    if summed is not None:
        shapes += [(*q.shape[:3], 1), (*k.shape[:2], summed.shape[-1])]
    return [q.new_empty(*shape, dtype=dtype) for shape in shapes]


@torch.library.custom_op("lrpe::causal_sum_gradient", mutates_args=())
def _causal_sum_gradient_op(
    grads: list[Tensor], tensors: list[Tensor], names: str, chunk: int, of_scores: bool, wants_decay: bool
) -> list[Tensor]:
    return [x.contiguous() for x in _differentiate(_Form(names, chunk, of_scores, wants_decay), grads, tensors)]


@_causal_sum_gradient_op.register_fake
def _(grads, tensors, names, chunk, of_scores, wants_decay):
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in tensors]


def _keep(ctx, inputs, output) -> None:
    tensors, *form = inputs
    ctx.form = _Form(*form)
    ctx.save_for_backward(*tensors)


def _backward(ctx, grads):
    return _causal_sum_gradient_op(grads, list(ctx.saved_tensors), *ctx.form), None, None, None, None


_causal_sum_op.register_autograd(_backward, setup_context=_keep)
