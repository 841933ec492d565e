"""Can a relative matrix W(t-s) be split into a factor for the query and one for the key?

Over n positions the blocks W(t-s) make one matrix B. If W(t-s) = A_sᴴ B_t with factors of height r, then rank B ≤ r
however large n is. If B is Hermitian and positive semidefinite as well, one factor M serves both sides; and if its rank
is d with W(0) = I, that factor is square and unitary: Definition 3.1.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from lrpe.errors import LrpeError, require

LARGEST = 512  # rows of the block matrix
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
    verdict: str  # a key of VERDICTS

    def __bool__(self) -> bool:
        return self.verdict != "none"

    def __str__(self) -> str:
        head = f"{'positions':>11}{'rank':>7}{'asymmetry':>12}{'least eigenvalue':>19}"
        rows = [f"{w.n:>11}{w.rank:>7}{w.asymmetry:>12.1e}{w.least_eigenvalue:>19.1e}" for w in self.windows]
        return "\n".join([head, *rows, f"  {VERDICTS[self.verdict]} (W is {self.shape[0]} × {self.shape[1]})"])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def linearizability(W: Callable[[int], Any]) -> Linearizability:
    """Measure over growing windows whether W(t-s), a matrix or a number for each offset, is linearizable.

    A rank counts as bounded when doubling the window leaves it (within a quarter) where it was.

    >>> print(linearizability(lambda s: 0.9**s).verdict)
    two factors
    >>> print(linearizability(lambda s: 0.9 ** abs(s)).verdict)
    none
    """
    shape = as_matrix(W(0)).shape
    sizes = [2**k for k in range(1, 8) if 2**k * max(shape) <= LARGEST] or [2]
    blocks = {s: as_matrix(W(s)) for s in range(1 - sizes[-1], sizes[-1])}
    require(
        all(block.shape == shape for block in blocks.values()),
        f"W(s) has one shape for all s; got {sorted({tuple(block.shape) for block in blocks.values()})}.",
    )
    if not all(bool(block.isfinite().all()) for block in blocks.values()):
        raise LrpeError(f"W(s) is finite; it is not for all |s| < {sizes[-1]}.")
    small = 1e-10 if is_exact(W(0)) else 1e-5  # what counts as zero, relative to the largest singular value
    windows = tuple(measure(blocks, n, small) for n in sizes)
    return Linearizability((shape[0], shape[1]), windows, judge(windows, blocks[0], 10 * small))


def as_matrix(value: Any) -> Tensor:
    """A number or a matrix, as a complex128 matrix."""
    exact = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.complex128)
    matrix = exact.detach().to("cpu", torch.complex128)
    require(matrix.ndim in (0, 2), f"W(s) is a matrix or a number; got a tensor of shape {tuple(matrix.shape)}.")
    return matrix.reshape(1, 1) if matrix.ndim == 0 else matrix


def is_exact(value: Any) -> bool:
    """Whether a number or a matrix has the digits of float64, or only those of float32 or less."""
    coarse = (torch.float32, torch.complex64, torch.bfloat16, torch.float16)
    return not isinstance(value, Tensor) or value.dtype not in coarse


def measure(blocks: dict[int, Tensor], n: int, small: float) -> Window:
    B = torch.cat([torch.cat([blocks[t - s] for t in range(n)], 1) for s in range(n)])
    sigma = torch.linalg.svdvals(B)
    rank = int((sigma > small * sigma[0]).sum())
    if B.shape[0] != B.shape[1]:
        return Window(n, rank, float("inf"), float("nan"))
    asymmetry = float((B - B.mH).abs().max() / B.abs().max().clamp(min=1e-300))
    eigenvalues = torch.linalg.eigvalsh((B + B.mH) / 2)
    return Window(n, rank, asymmetry, float(eigenvalues[0] / eigenvalues.abs().max().clamp(min=1e-300)))


def judge(windows: tuple[Window, ...], W_0: Tensor, small: float) -> str:
    before, last = windows[max(len(windows) - 2, 0)], windows[-1]
    if last.rank > 1.25 * before.rank:
        return "none"
    if not (last.asymmetry < small and last.least_eigenvalue > -small):
        return "two factors"
    identity = bool(((W_0 - torch.eye(len(W_0))).abs() < small).all())
    return "definition" if last.rank == len(W_0) and identity else "one factor"
