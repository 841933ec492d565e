"""The decay of scores with the distance of query and key: a factor r ≤ 1 per step, per head or per token."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lrpe.attention.sums.problem import FORGET
from lrpe.attention.tokens import Tokens
from lrpe.autograd import Remembered, has_values, registered
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.errors import LrpeError, check_count, check_tensor, require, unknown_name
from lrpe.precision import Precise, compute_dtype, in_float64, keep, without_autocast


def spread_decay(heads: int) -> list[float]:
    """Return r_h = 1 - 2^-(2 + 1.5h): the first heads forget within a few tokens, later ones after thousands."""
    check_count("heads", heads, most=2**16)
    return [1 - 2 ** -(2 + 1.5 * h) for h in range(heads)]


def tnl_decay(heads: int, layer: int = 0, layers: int = 1) -> list[float]:
    """Return TransNormerLLM's r_h = exp(-(8h/H)(1 - l/L)) for heads h = 1, ..., H of layer l = 0, ..., L-1.

    Later layers see more.
    """
    check_count("heads", heads, most=2**16)
    check_count("layers", layers)
    check_count("layer", layer, least=0, most=layers - 1)
    return [math.exp(-8 * h / heads * (1 - layer / layers)) for h in range(1, heads + 1)]


def retnet_decay(heads: int) -> list[float]:
    """Return RetNet's r_h = 1 - 2^(-5-h) for heads h = 0, ..., H-1."""
    check_count("heads", heads, most=2**16)
    return [1 - 2 ** (-5.0 - h) for h in range(heads)]


class Decay(Precise):
    """Base class: the logarithm of r for one step, log r ≤ 0."""

    per_token: bool = False  # whether r depends on the token, or is one per head

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Return log r for the tokens x (batch, n, width): (1, key heads, 1), or (batch, key heads, n) per token."""

    def rates(self) -> Tensor:
        """Return r per key head, (key heads,): its value, or what it is for an x of zeros."""
        with torch.no_grad():
            return self(self.zero_token()).exp()[0, :, 0]

    def zero_token(self) -> Tensor:
        """Return one token of zeros, (1, 1, width); the width is 0 if r does not depend on the token."""
        return torch.zeros(1, 1, 0)


class FixedDecay(Decay):
    """One constant r per key head."""

    r: Tensor = registered("_buffers")

    def __init__(self, r: Tensor | Sequence[float]):
        super().__init__()
        self.register_buffer("r", _read_rates(r).clone().float().to(torch.get_default_device()))
        self._log = Remembered(_log_per_head)

    def forward(self, x: Tensor) -> Tensor:
        return self._log(self.r)


def _log_per_head(r: Tensor) -> Tensor:
    return in_float64(r).log().view(1, -1, 1)  # float64: an error would be multiplied by the distance


class LearnedDecay(Decay):
    """One learned r = σ(a) per key head, which never exceeds 1; a starts at the logit of the given r."""

    def __init__(self, r: Tensor | Sequence[float]):
        super().__init__()
        self.logit: Tensor
        keep(self, "logit", _logit(_read_rates(r)), learned=True)

    def forward(self, x: Tensor) -> Tensor:
        return F.logsigmoid(self.logit).view(1, -1, 1)


class GatedDecay(Decay):
    """r_t = σ(W x_t + b) per token and key head. W starts at 0 and b at the logit of the given r."""

    per_token = True

    def __init__(self, r: Tensor | Sequence[float], width: int):
        super().__init__()
        r = _read_rates(r)
        check_count("width", width)
        self.weight: Tensor
        self.bias: Tensor
        keep(self, "weight", torch.zeros(len(r), width), learned=True)
        keep(self, "bias", _logit(r), learned=True)

    def forward(self, x: Tensor) -> Tensor:
        width = self.weight.shape[1]
        require(
            x.shape[-1] == width, lambda: f"decay must have the layer's width; it is for {width}, x has {x.shape[-1]}."
        )
        dtype = compute_dtype(x.dtype)
        with without_autocast(x):
            gate = F.linear(x.to(dtype), self.weight.to(dtype), self.bias.to(dtype))
        return F.logsigmoid(gate).clamp(min=FORGET).mT

    def zero_token(self) -> Tensor:
        return self.weight.new_zeros(1, 1, self.weight.shape[1])


class StepDecay(Decay):
    """r_t = exp(-A Δ_t) per token and key head, Mamba-3's, for the Δ_t that also scales the token's steps.

    A = exp(log_rate) is learned and starts at 1. The layer passes Δ, (batch, n, key heads), in place of the tokens.
    """

    per_token = True

    def __init__(self, key_heads: int):
        super().__init__()
        check_count("key_heads", key_heads)
        self.log_rate: Tensor
        keep(self, "log_rate", torch.zeros(key_heads), learned=True)

    def forward(self, x: Tensor) -> Tensor:
        return (-self.log_rate.exp().to(x.dtype) * x).clamp(min=FORGET).mT

    def rates(self) -> Tensor:
        """Return r per key head for Δ = 1."""
        return (-self.log_rate.detach().exp()).exp()


def _logit(r: Tensor) -> Tensor:
    """Return a with σ(a) = r. An r of 1 has none; the largest float64 below 1 takes its place."""
    return torch.special.logit(in_float64(r).clamp(max=1 - 2**-53)).to(torch.float32)


DecayChoice = str | Tensor | Sequence[float] | Decay | None  # a name, one r per key head, a module, or None

_SPREADS: dict[str, Callable[[int], list[float]]] = {
    "spread": spread_decay,
    "tnl": tnl_decay,
    "retnet": retnet_decay,
}
_WITH_PARAMETERS = ("learned", "gated", "mamba3")
DECAYS = (*_SPREADS, *_WITH_PARAMETERS)


def choose_decay(choice: DecayChoice, encoding: PositionalEncoding, key_heads: int, width: int) -> Decay | None:
    """Return the chosen decay of a layer, or else its encoding's, or None."""
    if isinstance(choice, Decay):
        check_alone(encoding)
        _check_module(choice, key_heads, width)
        return choice
    if isinstance(choice, str) and choice == "mamba3":
        check_alone(encoding)
        require(
            encoding.steps == "shared",
            f"decay='mamba3' shares Δ with the steps of an encoding with steps='shared'; got steps={encoding.steps!r}. "
            "Use encoding='mamba3', or decay='gated'.",
        )
        return StepDecay(key_heads)
    if isinstance(choice, str) and choice in ("learned", "gated"):
        check_alone(encoding)
        start = spread_decay(key_heads)
        return LearnedDecay(start) if choice == "learned" else GatedDecay(start, width)
    r = read_decay(choice, encoding, key_heads)
    return None if r is None else FixedDecay(r)


def read_decay(r: Any, encoding: PositionalEncoding, key_heads: int) -> Tensor | None:
    """Return the chosen constant r per key head, or else the encoding's, after checking it."""
    if r is None and encoding.decay is None:
        return None
    if r is not None:
        check_alone(encoding)
    if isinstance(r, str):
        r = _named_rates(r, key_heads)
    r = _read_rates(encoding.decay if r is None else r)
    require(
        r.shape[0] == key_heads,
        lambda: f"decay must have one r per key head, {key_heads} of them; got {r.dtype} of shape {tuple(r.shape)}.",
    )
    return r


def check_alone(encoding: PositionalEncoding) -> None:
    """Check that a decay may be added to this encoding."""
    require(
        encoding.decay is None,
        "This encoding brings its own decay: pass decay=None, or build the encoding with decay=None.",
    )
    require(
        encoding.axes == 1,
        f"A decay counts steps along a sequence; this encoding has a grid of {encoding.axes} axes. Pass decay=None.",
    )


def _named_rates(name: str, key_heads: int) -> list[float]:
    """Return the constant r per key head of a named decay."""
    require(
        name not in _WITH_PARAMETERS,
        f"decay={name!r} has parameters, which a layer owns; pass log_decay= here, or use LinearAttention.",
    )
    if name not in _SPREADS:
        raise unknown_name("decay", name, DECAYS)
    return _SPREADS[name](key_heads)


def _read_rates(r: Any) -> Tensor:
    """Return r per key head, given as a tensor or as numbers, after checking that every r is in (0, 1]."""
    if not isinstance(r, Tensor):
        try:
            r = torch.tensor(r, dtype=torch.float64, device="cpu")
        except (TypeError, ValueError, RuntimeError, OverflowError):  # torch raises any of these for non-numbers
            names = ", ".join(map(repr, DECAYS))
            raise LrpeError(
                f"decay must be {names}, one number per key head, or None; got {type(r).__name__}."
            ) from None
    check_tensor("decay", r)
    require(
        r.ndim == 1 and r.is_floating_point(),
        lambda: f"decay must have one real r per key head, (key heads,); got {r.dtype} of shape {tuple(r.shape)}.",
    )
    require(
        not r.requires_grad,
        "decay must not require a gradient. Pass its logarithm as log_decay, which may, or decay.detach().",
    )
    if has_values(r):
        require(bool(((r > 0) & (r <= 1)).all()), lambda: f"decay must have 0 < r ≤ 1; got {r.tolist()}.")
    return r


def _check_module(decay: Decay, key_heads: int, width: int) -> None:
    """Check that a given module has one r per key head for a token of this width."""
    tensors = (*decay.parameters(), *decay.buffers())
    like = next((tensor for tensor in tensors if tensor.is_floating_point()), torch.zeros(()))
    with torch.no_grad():
        found = tuple(decay(like.new_zeros(1, 1, width)).shape)
    require(
        found == (1, key_heads, 1),
        f"decay must give one log r per key head, (1, {key_heads}, 1) for one token; {type(decay).__name__} gave "
        f"{found}.",
    )


def read_log_decay(log_decay: Any, k: Tensor) -> Tensor:
    """Check the shape (batch or 1, key heads or 1, n) of a log-decay for the keys k (batch, key heads, n, d)."""
    check_tensor("log_decay", log_decay, k)
    batch, heads, n, _ = k.shape
    fits = log_decay.ndim == 3 and log_decay.is_floating_point()
    fits = fits and log_decay.shape[0] in (1, batch) and log_decay.shape[1] in (1, heads) and log_decay.shape[2] == n
    require(
        fits,
        lambda: (
            f"log_decay must be real, of shape (batch or 1, key heads or 1, n) = ({batch}, {heads}, {n}); got "
            f"{log_decay.dtype} of shape {tuple(log_decay.shape)}."
        ),
    )
    return log_decay


def bound_log_decay(log_decay: Tensor) -> Tensor:
    """Check that a log-decay is at most 0, and return it with a finite value for forgetting everything."""
    if has_values(log_decay) and log_decay.numel():
        highest = log_decay.detach().amax()
        require(
            bool(highest <= 0),
            lambda: (
                f"log_decay must be at most 0, so that no weight exceeds 1; got {highest.item()}. For a factor r pass "
                "r.log()."
            ),
        )
    return log_decay.clamp(min=FORGET)


def decay_between(log_r: Tensor | None, tokens: Tokens) -> Tensor | None:
    """Return the log-decay from each token to the next, as a Problem has it, given log r of one step.

    A step of several positions decays several times, padding is no step, and the first token of a packed sequence
    forgets everything before it.
    """
    begins = tokens.begins()
    if log_r is not None:
        distances = tokens.distances()
        if distances is not None:
            log_r = (log_r * distances[:, None].to(log_r.device)).clamp(min=FORGET)
    if begins is None:
        return log_r
    steps = torch.zeros(1, 1, 1, dtype=torch.float32, device=begins.device) if log_r is None else log_r
    return torch.where(begins[:, None].to(steps.device), FORGET, steps)
