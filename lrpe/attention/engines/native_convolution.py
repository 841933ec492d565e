"""The short convolution by the native engine: a kernel call forwards, and one backwards."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from lrpe.attention.engines.library import NativeConvolution, StridedRows, call, load_library
from lrpe.autograd import Differentiable, one_at_a_time, only_torch_operations
from lrpe.errors import require

_PIECE = 256  # tokens that are summed in float32 before float64; also the share of a thread


def can_convolve(x: Tensor, weight: Tensor) -> bool:
    """Return whether the kernel takes x (batch, n, channels): several tokens, in float32, on a CPU."""
    if only_torch_operations():  # first: what follows would break a graph, or tie it to the number of tokens
        return False
    if type(x) is not Tensor or type(weight) not in (Tensor, Parameter):  # a subclass may keep its numbers elsewhere
        return False
    if not (x.dtype is weight.dtype is torch.float32 and x.is_cpu and weight.is_cpu):
        return False
    return x.shape[1] > 1 and x.numel() > 0 and not isinstance(load_library(), str)


def convolve_native(x: Tensor, weight: Tensor, window: Tensor | None, before: int) -> Tensor:
    """Return y_t = Σ_i w_i ⊙ x_{t + i - before} of x (batch, n, channels), with the same shape.

    Args:
        x: the tokens.
        weight: w, (channels, kernel).
        window: the ``before`` tokens before the first one, (batch, before, channels); None for zeros.
        before: the number of tokens in the window of the convolution before the token itself.
    """
    (batch, _, channels), given = x.shape, (x, weight) if window is None else (x, weight, window)
    require(
        all(tensor.dtype == torch.float32 and tensor.is_cpu for tensor in given)
        and weight.shape[0] == channels
        and 0 <= before < weight.shape[1]
        and (window is None or tuple(window.shape) == (batch, before, channels)),
        lambda: (
            "The native convolution takes float32 on a CPU, with a channel of weights per channel of x and a window of "
            f"{before} tokens; got {[(tuple(tensor.shape), tensor.dtype) for tensor in given]}."
        ),
    )
    return _NativeConvolution.of(before, x, weight, window)


def convolve_by_torch(x: Tensor, weight: Tensor, window: Tensor | None, before: int) -> Tensor:
    """Return what ``convolve_native`` returns, term by term in torch's operations."""
    kernel, n = weight.shape[1], x.shape[1]
    first = x.new_zeros(x.shape[0], before, x.shape[2]) if window is None else window
    line = torch.cat([first, torch.nn.functional.pad(x, (0, 0, 0, kernel - 1 - before))], 1)
    return torch.stack([line[:, i : i + n] * weight[:, i] for i in range(kernel)]).sum(0)


class _NativeConvolution(Differentiable):
    """Backward reads the inputs again, so nothing else is kept."""

    @staticmethod
    def forward(before: int, x: Tensor, weight: Tensor, window: Tensor | None) -> Tensor:
        x, filters = _with_rows(x), weight.mT.contiguous()
        y = x.new_empty(x.shape)
        call("lrpe_convolution_forward", _describe(before, x, filters, window, y=y))
        return y

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.before, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, g: Tensor):  # type: ignore[override]
        x, weight, window = ctx.saved_tensors
        # A second derivative or a batched gradient needs operations that torch knows.
        if torch.is_grad_enabled() or not one_at_a_time(g):
            return None, *_gradients_by_torch(ctx.before, (x, weight, window), g, ctx.needs_input_grad[1:])
        x, g, filters = _with_rows(x), _with_rows(g), weight.mT.contiguous()
        _, wants_x, wants_weight, wants_window = ctx.needs_input_grad
        pieces = x.shape[0] * -(-x.shape[1] // _PIECE)
        dx = x.new_empty(x.shape) if wants_x else None
        dwindow = x.new_empty(window.shape) if wants_window else None
        dw = x.new_empty(pieces, *filters.shape) if wants_weight else None
        call("lrpe_convolution_backward", _describe(ctx.before, x, filters, window, g=g, dx=dx, dwindow=dwindow, dw=dw))
        return None, dx, None if dw is None else dw.sum(0, dtype=torch.float64).to(weight.dtype).mT, dwindow


def _describe(before: int, x: Tensor, filters: Tensor, window: Tensor | None, **others: Tensor | None):
    """Return the kernel's description, which keeps all its tensors alive; ``others`` are y, or those of backward."""
    problem = NativeConvolution(*x.shape, filters.shape[0], before, torch.get_num_threads(), piece=_PIECE)
    window = None if window is None else _with_rows(window)
    problem.alive = (x, filters, window, others)
    problem.w, problem.x = filters.data_ptr(), StridedRows.of(x)
    if window is not None:
        problem.window = StridedRows.of(window)
    for name, tensor in others.items():
        if tensor is not None:
            setattr(problem, name, StridedRows.of(tensor) if name == "g" else tensor.data_ptr())
    return problem


def _with_rows(x: Tensor) -> Tensor:
    """Return x with its channels next to each other in memory, and its sign in its numbers."""
    x = x.resolve_neg()
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _gradients_by_torch(before: int, tensors: Sequence[Tensor | None], g: Tensor, wanted: Sequence[bool]):
    """Return the gradients of x, weight and window, which can be differentiated again."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # view_as: if one tensor was computed from another, its gradient must not include the path through the other.
        inputs = [x if x is None or not x.requires_grad else x.view_as(x) for x in tensors]
        x, weight, window = inputs
        assert x is not None
        assert weight is not None
        y = convolve_by_torch(x, weight, window, before)
    asked = [x for x, wants in zip(inputs, wanted, strict=True) if wants and x is not None]
    results = iter(torch.autograd.grad(y, asked, g, create_graph=again))
    return [next(results) if wants else None for wants in wanted]
