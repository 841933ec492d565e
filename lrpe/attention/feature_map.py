"""Feature maps φ: a score φ(q)·φ(k) lets φ(q) be factored out of the sum over keys."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrpe.autograd import Differentiable, one_at_a_time
from lrpe.errors import PLUGIN_HINT, LrpeError, require, unknown_name
from lrpe.precision import Precise, compute_dtype, normal, without_autocast
from lrpe.registry import Registry

FeatureMap = Callable[[Tensor], Tensor]  # (..., head_dim) -> (..., any width), row by row


def elu_plus_one(x: Tensor) -> Tensor:
    """φ(x) = 1 + elu(x), as exp(min(x, 0)) + max(x, 0); its derivative is min(φ, 1), so only φ is saved."""
    return _EluPlusOne.of(x)


class _EluPlusOne(Differentiable):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp(max=0).exp_().add_(x.clamp(min=0))  # in place, on the copy that clamp made

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (phi,) = ctx.saved_tensors
        slope = phi.clamp(max=1)
        return slope.mul_(grads[0]) if one_at_a_time(*grads) else slope * grads[0]


def relu(x: Tensor, floor: float = 0.0) -> Tensor:
    """φ(x) = max(x, 0) + floor; PermuteFormer uses a floor of 1e-3."""
    return x.relu() + floor if floor else x.relu()


def relu_squared(x: Tensor) -> Tensor:
    """φ(x) = max(x, 0)², in float32 or float64, because float16 ends at 65504."""
    return x.to(compute_dtype(x.dtype)).relu().square()


def exp(x: Tensor) -> Tensor:
    """φ(x) = eˣ, in float32 or float64, because float16 ends near e¹¹."""
    return x.to(compute_dtype(x.dtype)).exp()


def identity(x: Tensor) -> Tensor:
    """φ(x) = x."""
    return x


class RandomFeatures(Precise):
    """FAVOR+ (Choromanski et al., 2021): φ(x) = exp(ω_i·x/d^¼ - ‖x‖²/2√d) / √m, so that E[φ(q)·φ(k)] = exp(q·k/√d).

    The m directions ω are orthogonal in blocks of d, have the lengths of Gaussian vectors, are drawn from the seed and
    are saved in the state_dict.
    """

    def __init__(self, head_dim: int, features: int | None = None, seed: int = 0):
        super().__init__()
        features = features or head_dim
        require(features >= 1, f"features must be at least 1; got features={features}.")
        blocks = -(-features // head_dim)
        gaussian, lengths = normal(2, blocks, head_dim, head_dim, seed=seed)
        Q, R = torch.linalg.qr(gaussian)
        uniform = Q * R.diagonal(dim1=-2, dim2=-1).sign()[:, None]  # over orthogonal matrices (Mezzadri, 2007)
        directions = uniform * lengths.norm(dim=-1, keepdim=True)
        self.omega: Tensor
        self.register_buffer("omega", directions.flatten(0, 1)[:features].clone(memory_format=torch.contiguous_format))

    def forward(self, x: Tensor) -> Tensor:
        width = self.omega.shape[-1]
        require(
            x.shape[-1] == width,
            lambda: f"These random features take vectors of size {width}; got {tuple(x.shape)}.",
        )
        dtype = compute_dtype(x.dtype)
        with without_autocast(x):
            scaled = x.to(dtype) * x.shape[-1] ** -0.25
            logits = scaled @ self.omega.to(dtype).mT - scaled.square().sum(-1, keepdim=True) / 2
            return logits.exp() / math.sqrt(len(self.omega))  # not cast back: most are too small for half


FEATURE_MAPS: Registry[Callable[[int], FeatureMap]] = Registry(
    {
        "elu+1": lambda d: elu_plus_one,
        "relu": lambda d: relu,
        "relu+1e-3": lambda d: partial(relu, floor=1e-3),
        "relu2": lambda d: relu_squared,
        "exp": lambda d: exp,
        "silu": lambda d: F.silu,  # can be negative
        "softplus": lambda d: F.softplus,
        "identity": lambda d: identity,
        "favor+": RandomFeatures,
    }
)


def choose_feature_map(choice: str | FeatureMap, head_dim: int) -> FeatureMap:
    """Return a feature map by name, or the given callable."""
    if callable(choice) and not isinstance(choice, type):
        return choice
    if not isinstance(choice, str):
        shown = f"the class {choice.__name__}" if isinstance(choice, type) else type(choice).__name__
        raise LrpeError(f"feature_map must be a name or a callable on tensors; got {shown}.")
    if choice not in FEATURE_MAPS:
        raise unknown_name("feature map", choice, FEATURE_MAPS, PLUGIN_HINT)
    return FEATURE_MAPS[choice](head_dim)


def check_feature_dtype(phi: FeatureMap, x: Tensor) -> None:
    """Refuse a module of the user's whose weights have another dtype than its input; autocast would convert them."""
    weight = next(phi.parameters(), None) if isinstance(phi, nn.Module) else None
    if weight is None or torch.is_autocast_enabled(x.device.type):
        return
    require(
        weight.dtype == x.dtype,
        lambda: (
            f"feature_map must have weights of q's dtype, {x.dtype}; got {weight.dtype}. Convert it by "
            f"feature_map.to({x.dtype})."
        ),
    )


def feature_width(phi: FeatureMap, head_dim: int) -> int:
    """Return the width of φ for vectors of size ``head_dim``, found by a trial call."""
    like = next(phi.parameters(), None) if isinstance(phi, nn.Module) else None
    x = torch.zeros(1, head_dim) if like is None else torch.zeros(1, head_dim, dtype=like.dtype, device=like.device)
    with torch.no_grad():
        try:
            found = phi(x)
        except (TypeError, RuntimeError, AttributeError, IndexError) as error:  # as a user's callable may raise
            raise LrpeError(f"feature_map failed on a tensor of shape (1, {head_dim}): {error}") from error
    if not (isinstance(found, Tensor) and found.ndim == 2 and len(found) == 1 and found.is_floating_point()):
        shown = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise LrpeError(f"feature_map must map (..., {head_dim}) to real numbers (..., width); it returned {shown}.")
    return found.shape[-1]
