"""Can a relative matrix W(t-s) be split into a factor for the query and one for the key?

Over n positions the blocks W(t-s) make one matrix B. If W(t-s) = A_sᴴ B_t with factors of height r, then rank B ≤ r
for every n. If B is also Hermitian and positive semidefinite, one factor M works for both sides; and if its rank
is d with W(0) = I, that factor is square and unitary: Definition 3.1.

A causal sum needs W(t-s) for t ≥ s alone. There 0.9^(t-s) = (0.9^-s) (0.9^t) has rank 1, while 0.9^|t-s| over all s and
t has rank n.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lrpe.theory.rank_growth import Numbers, Study, as_matrix, forgets, measure_growth, study

_LARGEST = 256  # the most rows of a block matrix in the report
_ENOUGH = 1024  # the most rows of one that decides positive semidefiniteness
_Verdict = Literal["definition", "one factor", "two factors", "none", "cannot tell"]


@dataclass(frozen=True)
class Window:
    """The block matrix [W(t-s)] over ``n`` positions."""

    n: int
    rank: int
    asymmetry: float  # largest entry of B - Bᴴ, relative to B's; inf if the blocks are not square
    least_eigenvalue: float  # of B's Hermitian part, relative to its largest; nan if the blocks are not square
    rounding: float  # by which rounding W may have changed an eigenvalue, relative to the largest


@dataclass(frozen=True)
class Linearizability:
    """The verdict on W(t-s) from growing ranges of positions; truthy if it is linearizable.

    Attributes:
        shape: the shape of W.
        causal: whether only t ≥ s was measured.
        windows: block matrices over a few positions.
        growth: (positions, rank of [uᵀ W(t-s) v]) for random u and v.
        reach: the largest |t-s| at which W was evaluated.
        verdict: "definition", "one factor", "two factors", "none" or "cannot tell".
        reason: the verdict in a sentence.
    """

    shape: tuple[int, int]
    causal: bool
    windows: tuple[Window, ...]
    growth: tuple[tuple[int, int], ...]
    reach: int
    verdict: _Verdict
    reason: str

    def __bool__(self) -> bool:
        return self.verdict in ("definition", "one factor", "two factors")

    def __str__(self) -> str:
        head = f"{'positions':>11}{'rank':>7}{'asymmetry':>12}{'least eigenvalue':>19}"
        rows = [f"{w.n:>11}{w.rank:>7}{w.asymmetry:>12.1e}{w.least_eigenvalue:>19.1e}" for w in self.windows]
        growth = ", ".join(f"{rank} of {n}" for n, rank in self.growth)
        ranks = f"  rank of uᵀ W(t-s) v for random u and v{', t ≥ s' if self.causal else ''}: {growth} positions"
        sides = "0 ≤ t-s" if self.causal else "|t-s|"
        tested = f"  tested for {sides} ≤ {self.reach}, to the rounding of its dtype, on a W of {self.shape}"
        return "\n".join([*([head, *rows] if rows else []), ranks, tested, f"  {self.verdict}: {self.reason}"])

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        for window in values["windows"]:  # JSON has no inf and no nan
            window |= {key: None for key, value in window.items() if not math.isfinite(value)}
        return values


def linearizability(W: Callable[[int], Any], causal: bool = False) -> Linearizability:
    """Measure over growing ranges whether W(t-s), a matrix or a number for each offset, is linearizable.

    W is evaluated at every offset up to 255, 511 or 1023, and further out at every 8th, 64th, 512th and 4096th, up to
    the end of a table or of floating point if that comes first. A rank counts singular values above the rounding of
    W's dtype, and must not change while the range doubles. No finite range proves that it never will, and a rank above
    512 may be taken for growth.

    Args:
        W: a function from an offset, an integer, to a matrix or a number.
        causal: whether to measure only t ≥ s, as in causal attention; W is then evaluated from 0 on.

    Returns:
        A Linearizability: the verdict, the reason in a sentence, and the ranks.

    Raises:
        LrpeError: W(s) is not finite, changes its shape, or is known for fewer than 16 positions.

    >>> linearizability(lambda s: 0.9**s).verdict
    'two factors'
    >>> linearizability(lambda s: 0.9 ** abs(s)).verdict
    'none'
    >>> linearizability(lambda s: 0.9**s, causal=True).verdict
    'two factors'
    """
    numbers = Numbers(W)
    found = study(numbers, causal)
    if causal and found.answer == "bounded":
        return _judge_causal(numbers, found)
    if found.answer == "bounded":
        return _judge_bounded(numbers, found, False)
    if found.answer == "unclear":
        return _report(numbers, found, causal, (), "cannot tell", _unclear_reason(found))
    windows = () if causal else _shown_windows(numbers, found)
    return _report(numbers, found, causal, windows, "none", _growing_reason(numbers, found, causal))


def _judge_bounded(numbers: Numbers, found: Study, causal: bool) -> Linearizability:
    """Judge one factor if the block matrix is positive semidefinite and singular, hence so for any n; else two."""
    windows = _shown_windows(numbers, found)
    last = windows[-1]
    if not _is_gram(last, numbers):
        height = max(found.top.rank, last.rank)
        reason = f"W(t-s) = A_sᴴ B_t, with different factors of height {height} for query and key."
        return _report(numbers, found, causal, windows, "two factors", reason)
    W_0 = as_matrix(numbers.W(0))
    is_identity = bool(((W_0 - torch.eye(len(W_0))).abs() < _tolerance(numbers, 1)).all())
    if last.rank == numbers.shape[0] and is_identity:
        return _report(numbers, found, causal, windows, "definition", "one square unitary M encodes query and key.")
    reason = f"one M of height {last.rank} encodes query and key, W(t-s) = M_sᴴ M_t."
    return _report(numbers, found, causal, windows, "one factor", reason)


def _judge_causal(numbers: Numbers, found: Study) -> Linearizability:
    """Judge W for t ≥ s alone. Its values for t < s are free, so W(s-t)ᴴ is tried there."""
    if forgets(numbers, found.near):
        reason = (
            f"a state of height {found.top.rank} computes it for t ≥ s, but part of W is gone after some steps, as in "
            "a window, and no factors A_s and B_t of a bounded height have that product."
        )
        return _report(numbers, found, True, (), "none", reason)
    if forgets(numbers, found.top):
        reason = (
            f"part of W is gone {found.top.stride} positions further; whether it fades or ends cannot be seen there."
        )
        return _report(numbers, found, True, (), "cannot tell", reason)
    if numbers.shape[0] == numbers.shape[1]:
        W = numbers.W
        mirrored = Numbers(lambda s: W(s) if s >= 0 else as_matrix(W(-s)).mH)
        both = study(mirrored, False)
        if both.answer == "bounded":
            return _judge_bounded(mirrored, both, True)
    reason = (
        f"for t ≥ s, W(t-s) = A_sᴴ B_t with factors of height {found.top.rank}, as a decay is (r^-s) (r^t); a causal "
        "sum can use it, a sum over all s and t cannot."
    )
    return _report(numbers, found, True, (), "two factors", reason)


def _report(
    numbers: Numbers, found: Study, causal: bool, windows: tuple[Window, ...], verdict: _Verdict, reason: str
) -> Linearizability:
    near = found.near
    growth = tuple((x.n, rank) for x, rank in zip(near.spectra, near.ranks, strict=True))
    return Linearizability(numbers.shape, causal, windows, growth, found.reach, verdict, reason)


def _unclear_reason(found: Study) -> str:
    ranks = ", ".join(map(str, found.top.ranks))
    return (
        f"the ranks {ranks} neither settle, with a gap in the singular values, nor grow steadily; W agrees to its "
        f"rounding with factors of height {found.top.rank} here, and may not further out."
    )


def _growing_reason(numbers: Numbers, found: Study, causal: bool) -> str:
    ranks = ", ".join(f"{x.rank(x.noise)} of {x.n}" for x in found.top.spectra)
    where = "" if found.top.stride == 1 else f", every {found.top.stride}th"
    reason = f"the rank grows with the number of positions: {ranks}{where}."
    few = None if causal else measure_growth(numbers, 1, 256, causal=True)
    if few is None or few.settled is None or forgets(numbers, few):
        return reason
    one_sided = study(numbers, True)
    if one_sided.answer != "bounded" or one_sided.top.rank != few.rank:
        return reason
    return (
        f"{reason} For t ≥ s alone it is {few.rank}, so causal attention can use it, as it can a decay: "
        "linearizability(W, causal=True)."
    )


def _shown_windows(numbers: Numbers, found: Study) -> tuple[Window, ...]:
    """Return block matrices of at most 256 rows, and one of twice the rank if that needs more."""
    side = max(numbers.shape)
    most = found.near.spectra[-1].n
    sizes = [2**k for k in range(1, 8) if 2**k * side <= _LARGEST and 2**k <= most] or [2]
    rank = found.top.settled
    if rank is not None and 2 * rank > sizes[-1]:
        sizes += [n for n in (2 ** math.ceil(math.log2(2 * rank)),) if n * side <= _ENOUGH and n <= most]
    return tuple(_measure_window(numbers, n) for n in sizes)


def _measure_window(numbers: Numbers, n: int) -> Window:
    B, noise = _block_matrix(numbers, n)
    sigma = torch.linalg.svdvals(B)
    rank = int((sigma > noise).sum())
    if B.shape[0] != B.shape[1]:
        return Window(n, rank, math.inf, math.nan, math.nan)
    eigenvalues = torch.linalg.eigvalsh((B + B.mH) / 2)
    entry, largest = (max(float(x.abs().max()), 1e-300) for x in (B, eigenvalues))
    asymmetry = float((B - B.mH).abs().max()) / entry
    return Window(n, rank, asymmetry, float(eigenvalues[0]) / largest, noise / largest)


def _block_matrix(numbers: Numbers, n: int) -> tuple[Tensor, float]:
    """Return B over n positions, and a bound of what rounding adds to its singular values."""
    found = [numbers.block(s) for s in range(1 - n, n)]
    blocks = torch.stack([block for block in found if block is not None])
    i = torch.arange(n)
    B = blocks[i - i[:, None] + n - 1].transpose(1, 2).flatten(2).flatten(0, 1)
    error = numbers.rounding.at(torch.arange(1 - n, n, dtype=torch.float64)) * blocks.abs().square().sum((1, 2)).sqrt()
    B = B if B.imag.any() else B.real
    return B, float(error.sum()) + len(B) * 2.0**-52 * float(torch.linalg.matrix_norm(B))


def _tolerance(numbers: Numbers, n: int) -> float:
    """Return how far rounding can separate two equal entries n positions from 0; at least 1e-9."""
    return max(4 * float(numbers.rounding.at(torch.tensor(float(n)))), 1e-9)


def _is_gram(window: Window, numbers: Numbers) -> bool:
    """Return whether B is Hermitian, positive semidefinite and singular, so that B = Mᴴ M for every n."""
    hermitian = window.asymmetry < _tolerance(numbers, window.n)
    positive = window.least_eigenvalue > -max(window.rounding, 1e-9)
    return hermitian and positive and window.rank < window.n * numbers.shape[0]
