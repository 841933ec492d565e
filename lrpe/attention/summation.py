"""The choice of summation: causal or bidirectional in linear time, or the quadratic specification."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from lrpe.arguments import check_count
from lrpe.attention.bidirectional import bidirectional_sum
from lrpe.attention.causal_sum import causal_sum
from lrpe.attention.full_precision import in_full_precision
from lrpe.attention.quadratic import quadratic_sum
from lrpe.attention.weights import PairWeights
from lrpe.errors import LrpeError, require, unknown_name
from lrpe.precision import compute_dtype


class Start(NamedTuple):
    """An initial state, and the number of positions from it to the first token."""

    S: Tensor | None  # (batch, key heads, f, e)
    z: Tensor | None  # (batch, key heads, f)
    gap: Tensor | None = None  # (batch,); 1 if None


class Sums(NamedTuple):
    """Σ (q·k) v, Σ q·k if it was requested, and the last state of a causal sum."""

    out: Tensor  # (batch, heads, n, e)
    total: Tensor  # (batch, heads, n, 1), or width 0 if it was not requested
    S: Tensor | None = None
    z: Tensor | None = None


class Summation(ABC):
    """Σ_s w_ts (q_t·k_s) v_s over the keys that query t sees."""

    causal: bool

    @abstractmethod
    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, pairs: PairWeights, total: bool = False, start: Start | None = None
    ) -> Sums: ...


@dataclass(frozen=True)
class Causal(Summation):
    """Sum over a query's own and earlier keys, chunk by chunk, in time and memory linear in n."""

    chunk: int = 64
    causal = True

    def __post_init__(self):
        check_count("chunk", self.chunk)

    def __call__(self, q, k, v, pairs, total=False, start=None) -> Sums:
        S, z, gap = start or (None, None, None)
        return Sums(*causal_sum(q, k, v, pairs, S, z if total else None, gap, self.chunk, total))


@dataclass(frozen=True)
class Bidirectional(Summation):
    """Sum over all keys: once for all queries, or by two causal passes with a decay or packed sequences."""

    chunk: int = 64
    causal = False

    def __post_init__(self):
        check_count("chunk", self.chunk)

    def __call__(self, q, k, v, pairs, total=False, start=None) -> Sums:
        require(start is None, "A bidirectional sum takes no initial state. Pass state=None, or use Causal().")
        return Sums(*bidirectional_sum(q, k, v, pairs, self.chunk, total))


@dataclass(frozen=True)
class Quadratic(Summation):
    """Form the n × n matrix of weighted scores: the specification that the linear-time sums are tested against."""

    causal: bool = True  # type: ignore[assignment]

    def __call__(self, q, k, v, pairs, total=False, start=None) -> Sums:
        S, z, gap = start or (None, None, None)
        out, sums = quadratic_sum(q, k, v, pairs, self.causal, S, z, gap)
        if not self.causal:
            return Sums(out, sums if total else sums[..., :0])
        last = _last_state(k, v, pairs, start)
        return Sums(out, sums if total else sums[..., :0], last[0], last[1] if total else last[1][..., :0])


@in_full_precision
def _last_state(k: Tensor, v: Tensor, pairs: PairWeights, start: Start | None) -> tuple[Tensor, Tensor]:
    """Return Σ_s r^(p_n - p_s) k_s v_sᵀ and Σ_s r^(p_n - p_s) k_s over the last token's sequence."""
    p = pairs.token_positions(k.shape[2], k.device)
    dtype = compute_dtype(k.dtype)
    w = pairs.decay_over(p[:, -1:] - p, dtype)[..., None]  # (batch, heads, n, 1)
    gap = 1 if start is None or start.gap is None else start.gap
    first = pairs.decay_over((p[:, -1:] - p[:, :1]).sum(-1) + gap, dtype)  # (batch, heads)
    if pairs.sequences is not None:
        same = pairs.sequences == pairs.sequences[:, -1:]
        w, first = w * same[:, None, :, None], first * same[:, :1]
    faded = k.to(dtype) * w
    S, z = faded.mT @ v.to(dtype), faded.sum(2)
    if start is not None:
        S = S if start.S is None else S + first[..., None, None] * start.S
        z = z if start.z is None else z + first[..., None] * start.z
    return S, z


_SUMMATIONS: dict[str, type[Summation]] = {"causal": Causal, "bidirectional": Bidirectional}


def choose_summation(choice: str | Summation) -> Summation:
    """Return the summation of this name, or the given object."""
    if isinstance(choice, Summation):
        return choice
    if not isinstance(choice, str):
        raise LrpeError(f"summation must be a name or a Summation; got {type(choice).__name__}.")
    if choice not in _SUMMATIONS:
        raise unknown_name("summation", choice, _SUMMATIONS)
    return _SUMMATIONS[choice]()
