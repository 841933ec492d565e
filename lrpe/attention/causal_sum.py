"""The chunkwise causal sum as one differentiable operation: eager, compiled, exported, and under torch.func."""

from typing import Any

import torch
from torch import Tensor

from lrpe.attention.chunkwise import sum_backward, sum_forward, sum_out_of_place
from lrpe.attention.full_precision import in_full_precision
from lrpe.attention.weights import PairWeights
from lrpe.autograd import Differentiable
from lrpe.errors import LrpeError
from lrpe.precision import compute_dtype

_CausalSums = tuple[Tensor, Tensor, Tensor, Tensor]  # Σ (q·k) v, Σ q·k, the last state S, the last sum of keys z


def causal_sum(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pairs: PairWeights,
    S: Tensor | None = None,
    z: Tensor | None = None,
    gap: Tensor | None = None,
    chunk: int = 64,
    total: bool = False,
) -> _CausalSums:
    """Σ_{s ≤ t} r^(p_t - p_s) (q_t·k_s) v_s, from an initial state (S, z) at ``gap`` positions before the first token.

    q is (batch, heads, n, f), k (batch, key heads, n, f), v (batch, key heads, n, e). If ``total`` is true, the sum of
    the scores is computed too, (batch, heads, n, 1); otherwise that result has width 0.
    """
    if gap is None and not (S is None and z is None):
        gap = torch.ones(q.shape[0], dtype=torch.long, device=q.device)
    if torch.compiler.is_exporting():
        return sum_out_of_place(q, k, v, S, z, gap, pairs, chunk, total)
    # Without weights the sum of the scores is a cumulative sum, and the rest can use the faster loop over chunks.
    if total and pairs.all_ones:
        sums, z_last = _running_total(q, k, z)
        if v.shape[-1] == 0:
            return sums[..., :0], sums, z_last[..., None][..., :0], z_last
        out, _, S_last, _ = causal_sum(q, k, v, pairs, S, None, gap, chunk)
        return out, sums, S_last, z_last
    arguments = (q, k, v, S, z, gap, pairs.decay, pairs.positions, pairs.sequences, chunk, total)
    return _causal_sum_op(*arguments) if torch.compiler.is_compiling() else _CausalSum.of(*arguments)


def _running_total(q: Tensor, k: Tensor, z: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the sums (batch, heads, n, 1) from an initial sum of keys z (batch, key heads, f), and the last z."""
    dtype = compute_dtype(q.dtype)
    q, k = q.to(dtype), k.to(dtype)
    sums = _RunningTotal.of(q, k, k.new_zeros(*k.shape[:2], k.shape[-1]) if z is None else z.to(dtype))
    return sums, (k.sum(2) if z is None else z + k.sum(2))


class _RunningTotal(Differentiable):
    """q_t·z_t with z_t = z + Σ_{s ≤ t} k_s, and its gradients dq_t = g_t z_t, dk_s = Σ_{t ≥ s} g_t q_t, dz = dk_0.

    The backward pass computes z_t again; autograd would keep all of them.
    """

    generate_vmap_rule = True

    @staticmethod
    @in_full_precision
    def forward(q: Tensor, k: Tensor, z: Tensor) -> Tensor:
        sums = k.cumsum(2).add_(z.unsqueeze(2))
        return torch.einsum("bhgtf,bhtf->bhgt", _grouped(q, k), sums).reshape(*q.shape[:3], 1)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        q, k, z = ctx.saved_tensors
        sums = k.cumsum(2) + z.unsqueeze(2)
        dq = _grouped(grads[0], k) * sums.unsqueeze(2)
        added = _grouped(grads[0] * q, k).sum(2)
        return dq.reshape(q.shape), added.flip(2).cumsum(2).flip(2), added.sum(2)


def _grouped(x: Tensor, k: Tensor) -> Tensor:
    """(batch, heads, n, d) -> (batch, key heads, group, n, d)."""
    return x.unflatten(1, (k.shape[1], -1))


class _CausalSum(Differentiable):
    """The causal sum, which keeps only its inputs; autograd would keep every chunk's scores and state."""

    @staticmethod
    def forward(q, k, v, S, z, gap, decay, positions, sequences, chunk, total) -> _CausalSums:
        return sum_forward(q, k, v, S, z, gap, PairWeights(decay, positions, sequences), chunk, total)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs[:9])
        ctx.chunk, ctx.total = inputs[9:]

    @staticmethod
    def backward(ctx, *grads: Any):
        saved = ctx.saved_tensors  # read once: under checkpointing a second read fails
        dq, dk, dv, dS, dz = _CausalSumGradient.of(*grads, *saved, ctx.chunk, ctx.total)
        S, z = saved[3:5]
        return dq, dk, dv, None if S is None else dS, None if z is None else dz, *(None,) * 6

    @staticmethod
    def vmap(info, in_dims, *inputs):
        return _fold_vmap(_CausalSum.apply, info.batch_size, in_dims, inputs, batch_of=inputs[0], dim=in_dims[0])


class _CausalSumGradient(Differentiable):
    """The gradients of the causal sum, which can be differentiated once more."""

    @staticmethod
    def forward(g, g_sums, g_S, g_z, q, k, v, S, z, gap, decay, positions, sequences, chunk, total):
        pairs = PairWeights(decay, positions, sequences)
        return sum_backward(g, g_sums, g_S, g_z, q, k, v, S, z, gap, pairs, chunk, total)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs[:13])
        ctx.chunk, ctx.total = inputs[13:]

    @staticmethod
    def backward(ctx, *grads: Any):
        saved = ctx.saved_tensors
        given = [i for i, tensor in enumerate(saved[:9]) if tensor is not None]
        found = _CausalSumCurvature.of(*saved, *grads, ctx.chunk, ctx.total)
        second: list[Tensor | None] = [None] * 15
        for i, gradient in zip(given, found, strict=True):
            second[i] = gradient
        return tuple(second)

    @staticmethod
    def vmap(info, in_dims, *inputs):
        return _fold_vmap(
            _CausalSumGradient.apply, info.batch_size, in_dims, inputs, batch_of=inputs[4], dim=in_dims[4]
        )


class _CausalSumCurvature(Differentiable):
    """The second derivatives, computed by torch.func from the out-of-place sums; they have no derivative."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        tensors, (gap, *pairs), grads, (chunk, total) = inputs[:9], inputs[9:13], inputs[13:18], inputs[18:]
        given = [i for i, tensor in enumerate(tensors) if tensor is not None]
        summed = [i for i in given if i >= 4]  # q, k, v, and S and z unless they are None

        def sums(*values: Tensor):
            filled = dict(zip(summed, values, strict=True))
            return sum_out_of_place(*(filled.get(i) for i in range(4, 9)), gap, PairWeights(*pairs), chunk, total)

        def gradients(*values: Tensor):
            filled = dict(zip(given, values, strict=True))
            return torch.func.vjp(sums, *(filled[i] for i in summed))[1](values[:4])

        return torch.func.vjp(gradients, *(tensors[i] for i in given))[1](tuple(grads[i - 4] for i in summed))

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        pass  # nothing to save: backward only raises

    @staticmethod
    def backward(ctx, *grads: Any):
        raise LrpeError("The causal sum has only first and second derivatives. Use summation=Quadratic() for others.")

    @staticmethod
    def vmap(info, in_dims, *inputs):
        return _fold_vmap(
            _CausalSumCurvature.apply, info.batch_size, in_dims, inputs, batch_of=inputs[4], dim=in_dims[4]
        )


def _fold_vmap(apply, size: int, in_dims, inputs, batch_of: Tensor, dim: int | None):
    """Fold vmap's axis into the batch axis, which comes first in every tensor but the decay."""
    batch = batch_of.movedim(dim, 0).shape[1] if dim is not None else batch_of.shape[0]

    def fold(x: Any, at: int | None) -> Any:
        # The decay is the only float tensor of one axis; it stays as it is.
        if not isinstance(x, Tensor) or (x.ndim == 1 and at is None and x.is_floating_point()):
            return x
        x = x.expand(size, *x.shape) if at is None else x.movedim(at, 0)
        if x.ndim == 2 and x.is_floating_point():
            raise LrpeError(f"vmap must not map over decay; got decay of shape {tuple(x.shape)}. Pass in_dims=None.")
        return x.expand(size, batch, *x.shape[2:]).flatten(0, 1)

    outputs = apply(*(fold(x, at) for x, at in zip(inputs, in_dims, strict=True)))
    return tuple(output.unflatten(0, (size, batch)) for output in outputs), (0,) * len(outputs)


@torch.library.custom_op("lrpe::causal_sum", mutates_args=())
def _causal_sum_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    S: Tensor | None,
    z: Tensor | None,
    gap: Tensor | None,
    decay: Tensor | None,
    positions: Tensor | None,
    sequences: Tensor | None,
    chunk: int,
    total: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum as one node of a compiled graph, so that the graph does not depend on the number of chunks."""
    out, sums, S_last, z_last = sum_forward(q, k, v, S, z, gap, PairWeights(decay, positions, sequences), chunk, total)
    # The fake kernel below promises contiguous tensors.
    return out.contiguous(), sums.contiguous(), S_last, z_last


@_causal_sum_op.register_fake
def _(q, k, v, S, z, gap, decay, positions, sequences, chunk, total):
    dtype = compute_dtype(q.dtype)
    (batch, heads, n, f), e, key_heads = q.shape, v.shape[-1], k.shape[1]
    return (
        q.new_empty(batch, heads, n, e, dtype=dtype),
        q.new_empty(batch, heads, n, int(total), dtype=dtype),
        q.new_empty(batch, key_heads, f, e, dtype=dtype),
        q.new_empty(batch, key_heads, f if total else 0, dtype=dtype),
    )


@torch.library.custom_op("lrpe::causal_sum_gradient", mutates_args=())
def _causal_sum_gradient_op(
    g: Tensor,
    g_sums: Tensor,
    g_S: Tensor,
    g_z: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    S: Tensor | None,
    z: Tensor | None,
    gap: Tensor | None,
    decay: Tensor | None,
    positions: Tensor | None,
    sequences: Tensor | None,
    chunk: int,
    total: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    pairs = PairWeights(decay, positions, sequences)
    dq, dk, dv, dS, dz = sum_backward(g, g_sums, g_S, g_z, q, k, v, S, z, gap, pairs, chunk, total)
    return dq.contiguous(), dk.contiguous(), dv.contiguous(), dS, dz.contiguous()


@_causal_sum_gradient_op.register_fake
def _(g, g_sums, g_S, g_z, q, k, v, S, z, gap, decay, positions, sequences, chunk, total):
    like = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v, g_S, g_z)]
    return tuple(like)


def _backward(ctx, *grads):
    saved = ctx.saved_tensors
    dq, dk, dv, dS, dz = _causal_sum_gradient_op(*grads, *saved, ctx.chunk, ctx.total)
    S, z = saved[3:5]
    return dq, dk, dv, None if S is None else dS, None if z is None else dz, *(None,) * 6


_causal_sum_op.register_autograd(
    _backward, setup_context=lambda ctx, inputs, output: _CausalSum.setup_context(ctx, inputs, output)
)
