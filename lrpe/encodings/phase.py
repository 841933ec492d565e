"""cos and sin of the angles p·α at real phases p, the running sums of token-dependent steps."""

import math

import torch
from torch import Tensor

from lrpe.autograd import Differentiable, differentiating_forward, eager
from lrpe.encodings.angles import Angles

_TURN = 2 * math.pi


def cos_sin(angles: Angles, phases: Tensor, dtype: torch.dtype, axis: int) -> Tensor:
    """Return cos and sin of ``angles.at_phases(phases)``, stacked along a new axis, -1 or -2, of size 2."""
    return turns(*angles.factors(phases), dtype, axis).to(phases.device)


def turns(p: Tensor, alpha: Tensor, dtype: torch.dtype, axis: int) -> Tensor:
    """Return cos and sin of p·α in ``dtype``, stacked along a new axis, -1 or -2, of size 2.

    The angle is formed and reduced to one turn in float64. If ``dtype`` is float32 its cosine is computed in float32,
    which is exact enough for an angle of at most 2π and twice as fast.
    """
    if eager() and not differentiating_forward():
        return _CosSin.of(p, alpha, dtype, axis)
    angle = _reduce(p * alpha, dtype)
    return torch.stack([angle.cos(), angle.sin()], axis)


def _reduce(angle: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the angle in ``dtype``, without its whole turns if that has fewer digits than the angle."""
    return angle if dtype == angle.dtype else (angle / _TURN).frac().to(dtype) * _TURN


class _CosSin(Differentiable):
    """cos and sin of p·α, which save nothing but themselves: d(p·α) = cos · g_sin - sin · g_cos.

    Autograd's own gradient would keep the angle in float64 and compute each sine and cosine a second time.
    """

    @staticmethod
    def forward(p: Tensor, alpha: Tensor, dtype: torch.dtype, axis: int) -> Tensor:
        angle = p * alpha
        if dtype != angle.dtype:  # _reduce, in place
            angle = angle.div_(_TURN).frac_().to(dtype).mul_(_TURN)
        shape = list(angle.shape)
        shape.insert(len(shape) + 1 + axis, 2)
        turns = angle.new_empty(shape)
        torch.cos(angle, out=turns.select(axis, 0))
        torch.sin(angle, out=turns.select(axis, 1))
        return turns

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        p, alpha, _, ctx.axis = inputs
        # p is needed for α's gradient alone
        ctx.save_for_backward(p if ctx.needs_input_grad[1] else None, alpha, output)
        ctx.shape = p.shape

    @staticmethod
    def backward(ctx, *grads: Tensor):
        p, alpha, turns = ctx.saved_tensors
        (cos, sin), (g_cos, g_sin) = turns.unbind(ctx.axis), grads[0].unbind(ctx.axis)
        g = torch.addcmul(cos * g_sin, sin, g_cos, value=-1)
        dp = (g * alpha.to(g.dtype)).sum_to_size(ctx.shape).to(alpha.dtype) if ctx.needs_input_grad[0] else None
        if p is None:
            return dp, None, None, None
        return dp, (g * p.to(g.dtype)).sum_to_size(alpha.shape).to(alpha.dtype), None, None
