"""Can a relative matrix W(t-s) be split into a factor for the query and one for the key?

Over n positions the blocks W(t-s) make one matrix B. If W(t-s) = A_sᴴ B_t with factors of height r, then rank B ≤ r
however large n is. If B is Hermitian and positive semidefinite as well, one factor M serves both sides; and if its rank
is d with W(0) = I, that factor is square and unitary: Definition 3.1.

Whether the rank grows is asked of the numbers uᴴ W(t-s) w for random u and w, over many more positions than blocks
would allow: their matrix has a bounded rank if B has, and a growing one if B has.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lrpe.errors import require

LARGEST = 256  # rows of the block matrix
FAR = 256  # positions over which the rank may grow
VERDICTS = {
    "definition": "linearizable: Definition 3.1, one square unitary M serves query and key",
    "one factor": "linearizable: one M, taller than d, serves query and key",
    "two factors": "linearizable as A_sᴴ B_t, with different factors for query and key",
    "none": "not linearizable: the rank grows with the number of positions",
}


@dataclass(frozen=True)
class Window:
    """The block matrix [W(t-s)] over ``n`` positions."""

    n: int
    rank: int
    asymmetry: float  # largest entry of B - Bᴴ, relative to B's; inf if the blocks are not square
    least_eigenvalue: float  # of B's Hermitian part, relative to its largest; nan if the blocks are not square


@dataclass(frozen=True)
class Linearizability:
    """What growing windows say of W(t-s); truthy if it is linearizable."""

    shape: tuple[int, int]
    windows: tuple[Window, ...]
    growth: tuple[tuple[int, int], ...]  # (positions, rank of [uᴴ W(t-s) w])
    verdict: Literal["definition", "one factor", "two factors", "none"]

    def __bool__(self) -> bool:
        return self.verdict != "none"

    def __str__(self) -> str:
        head = f"{'positions':>11}{'rank':>7}{'asymmetry':>12}{'least eigenvalue':>19}"
        rows = [f"{w.n:>11}{w.rank:>7}{w.asymmetry:>12.1e}{w.least_eigenvalue:>19.1e}" for w in self.windows]
        growth = ", ".join(f"{rank} of {n}" for n, rank in self.growth)
        verdict = f"  {VERDICTS[self.verdict]} (W is {self.shape[0]} × {self.shape[1]})"
        return "\n".join([head, *rows, f"  rank of uᴴ W(t-s) w for random u and w: {growth} positions", verdict])

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        for window in values["windows"]:  # JSON has no inf and no nan
            window |= {key: None for key, value in window.items() if not math.isfinite(value)}
        return values


def linearizability(W: Callable[[int], Any]) -> Linearizability:
    """Measure over growing windows whether W(t-s), a matrix or a number for each offset, is linearizable.

    >>> print(linearizability(lambda s: 0.9**s).verdict)
    two factors
    >>> print(linearizability(lambda s: 0.9 ** abs(s)).verdict)
    none
    """
    W_0 = as_matrix(W(0))
    rows, columns = W_0.shape
    sizes = [2**k for k in range(1, 8) if 2**k * max(rows, columns) <= LARGEST] or [2]
    blocks = {s: as_matrix(W(s)) for s in range(1 - FAR, FAR)}
    shapes = {tuple(block.shape) for block in blocks.values()}
    require(len(shapes) == 1, f"W(s) has one shape for all s; got {sorted(shapes)}.")
    finite = all(bool(block.isfinite().all()) for block in blocks.values())
    require(finite, f"W(s) is finite; it is not for all |s| < {FAR}.")
    small = 1e-10 if is_exact(W(0)) else 1e-5  # what counts as zero, relative to the largest singular value
    windows = tuple(measure(block_matrix(blocks, n), n, small) for n in sizes)
    growth = tuple(rank_over(blocks, n, small) for n in (FAR // 4, FAR // 2, FAR))
    return Linearizability((rows, columns), windows, growth, judge(windows[-1], growth, W_0, 10 * small))


def block_matrix(blocks: dict[int, Tensor], n: int) -> Tensor:
    return torch.cat([torch.cat([blocks[t - s] for t in range(n)], 1) for s in range(n)])


def rank_over(blocks: dict[int, Tensor], n: int, small: float) -> tuple[int, int]:
    """(n, the rank of [uᴴ W(t-s) w] over n positions), for u and w that are always the same."""
    generator = torch.Generator().manual_seed(0)
    u, w = (torch.randn(size, dtype=torch.complex128, generator=generator) for size in blocks[0].shape)
    numbers = torch.stack([u.conj() @ blocks[s] @ w for s in range(1 - n, n)])
    places = torch.arange(n)
    return n, rank(numbers[places - places[:, None] + n - 1], small)


def rank(B: Tensor, small: float) -> int:
    sigma = torch.linalg.svdvals(B)
    return int((sigma > small * sigma[0]).sum())


def as_matrix(value: Any) -> Tensor:
    """A number or a matrix, as a complex128 matrix."""
    exact = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.complex128)
    matrix = exact.detach().to("cpu", torch.complex128)
    require(matrix.ndim in (0, 2), f"W(s) is a matrix or a number; got a tensor of shape {tuple(matrix.shape)}.")
    return matrix.reshape(1, 1) if matrix.ndim == 0 else matrix


def is_exact(value: Any) -> bool:
    """Whether a number or a matrix has the digits of float64, or only those of float32 or less."""
    if isinstance(value, int | float | complex | list | tuple):
        return True
    coarse = (torch.float32, torch.complex64, torch.bfloat16, torch.float16)
    return torch.as_tensor(value).dtype not in coarse


def measure(B: Tensor, n: int, small: float) -> Window:
    if B.shape[0] != B.shape[1]:
        return Window(n, rank(B, small), float("inf"), float("nan"))
    asymmetry = float((B - B.mH).abs().max() / B.abs().max().clamp(min=1e-300))
    eigenvalues = torch.linalg.eigvalsh((B + B.mH) / 2)
    least = float(eigenvalues[0] / eigenvalues.abs().max().clamp(min=1e-300))
    return Window(n, rank(B, small), asymmetry, least)


def judge(window: Window, growth: tuple[tuple[int, int], ...], W_0: Tensor, small: float):
    """A rank grows if doubling the positions adds many to it, and more than the doubling before did."""
    (_, early), (_, middle), (n, late) = growth
    if late - middle >= n / 16 and late - middle > 1.25 * (middle - early):
        return "none"
    if not (window.asymmetry < small and window.least_eigenvalue > -small):
        return "two factors"
    identity = bool(((W_0 - torch.eye(len(W_0))).abs() < small).all())
    return "definition" if window.rank == len(W_0) and identity else "one factor"
