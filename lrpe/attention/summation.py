"""Which keys a query sums over, as a choice: causal or bidirectional, in linear time or by the specification."""

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
    """A state that the sum goes on from, and how far before the first token it stands."""

    S: Tensor | None  # (batch, key heads, f, e)
    z: Tensor | None  # (batch, key heads, f)
    gap: Tensor | None = None  # (batch,); 1 if None


class Sums(NamedTuple):
    """Σ (q·k) v, and Σ q·k if asked for; with the last state of a causal sum."""

    out: Tensor  # (batch, heads, n, e)
    total: Tensor  # (batch, heads, n, 1), or 0 wide if not asked for
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
    """A query sees itself and what comes before it; chunk by chunk, in time and memory linear in n."""

    chunk: int = 64
    causal = True

    def __post_init__(self):
        check_count("chunk", self.chunk)

    def __call__(self, q, k, v, pairs, total=False, start=None) -> Sums:
        S, z, gap = start or (None, None, None)
        return Sums(*causal_sum(q, k, v, pairs, S, z if total else None, gap, self.chunk, total))


@dataclass(frozen=True)
class Bidirectional(Summation):
    """A query sees every key; one sum for all of them, or two causal passes if they decay or are packed."""

    chunk: int = 64
    causal = False

    def __post_init__(self):
        check_count("chunk", self.chunk)

    def __call__(self, q, k, v, pairs, total=False, start=None) -> Sums:
        require(start is None, "A bidirectional sum sees every key at once, so it goes on from no state.")
        return Sums(*bidirectional_sum(q, k, v, pairs, self.chunk, total))


@dataclass(frozen=True)
class Quadratic(Summation):
    """The specification: the n × n matrix itself."""

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
    """Σ_s r^(p_n - p_s) k_s v_sᵀ and Σ_s r^(p_n - p_s) k_s over the last token's sequence."""
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
    """A summation by name, or the object itself."""
    if isinstance(choice, Summation):
        return choice
    if not isinstance(choice, str):
        raise LrpeError(f"A summation is a name or a Summation; got {type(choice).__name__}.")
    if choice not in _SUMMATIONS:
        raise unknown_name("summation", choice, _SUMMATIONS)
    return _SUMMATIONS[choice]()
