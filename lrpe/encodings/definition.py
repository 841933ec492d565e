"""The definition and the theorem as measurements: does an encoding, or an idea for one, obey them?

Definition 3.1: (M_s q)ᴴ (M_t k) = qᴴ W_{t-s} k with W_0 = I. Proposition 3.2: then W_s can be chosen unitary with
W_{t-s} = W_sᴴ W_t. So s ↦ W_s is a unitary representation of the integers, fixed by W_1: W_s = W_1^s.
"""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from lrpe.encodings.encoding import Encoding, PositionalEncoding
from lrpe.encodings.growth import as_matrix, rounding_of
from lrpe.encodings.laws import Factor, Measure, Position, Report, minus
from lrpe.encodings.linearizability import linearizability
from lrpe.errors import LrpeError, require

FAR = 10**6  # an encoding is exact there; a researcher's function is asked for less
NEAR = 10**3

Module = TypeVar("Module", bound=nn.Module)


def verify(
    subject: PositionalEncoding | Callable[[int], Any] | None = None,
    *,
    relative: Callable[[int], Any] | None = None,
    map: Callable[[Tensor, int], Tensor] | None = None,
    dim: int | None = None,
    tolerance: float | None = None,
    seed: int = 0,
) -> Report:
    """Measure the laws on an encoding, or on an idea: a factor M(s), a relative matrix W(s), or a map f(x, s).

    Args:
        subject: an encoding, or a function from a position to the matrix M_s.
        relative: a function from an offset t-s to the matrix (or number) W_{t-s}; also asks if it is linearizable.
        map: a function of a vector of size ``dim`` and a position; it must be linear in the vector.
        dim: the size of the vectors that ``map`` takes.
        tolerance: the largest residual that still holds; 1e-8, or 1e-4 for functions that compute in float32.
        seed: of the random positions and vectors.

    >>> quarter_turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> bool(verify(lambda s: torch.linalg.matrix_power(quarter_turn, s)))
    True
    >>> bool(verify(lambda s: 1.01**s * torch.eye(2)))
    False
    """
    given = [value for value in (subject, relative, map) if value is not None]
    require(len(given) == 1, "verify takes one of: an encoding or factor M(s), relative=W(s), map=f(x, s).")
    measure = Measure(expected_residual(subject, relative, map, dim) if tolerance is None else tolerance, seed)
    if relative is not None:
        return verify_relative(relative, measure)
    if map is not None:
        return verify_map(map, dim, measure)
    if isinstance(subject, Encoding):
        return verify_encoding(subject, measure)
    if isinstance(subject, PositionalEncoding):
        return verify_outside(subject, measure)
    if not callable(subject) or isinstance(subject, nn.Module):
        raise LrpeError(
            f"verify takes an encoding of queries and keys, or a function M(s); got {type(subject).__name__}. "
            "For a canonical form there is linearizability(form.relative)."
        )
    return verify_factor(bounded(subject), "M(s)", measure)


def expected_residual(subject: Any, relative: Any, map: Any, dim: int | None) -> float:
    """What float64 leaves of a law, or float32 if the idea is computed in that."""
    if map is not None and dim is not None:
        value = map(torch.zeros(dim, dtype=torch.float64), 0)
    else:
        idea = relative or (None if isinstance(subject, nn.Module) else subject)
        value = idea(0) if callable(idea) else 0.0
    return 1e-8 if rounding_of(value).value <= 2.0**-53 else 1e-4


def bounded(idea: Callable[[int], Any]) -> Factor:
    """The idea as a factor; where Python's numbers overflow it is infinite, and breaks the law."""
    shape = as_matrix(idea(0)).shape

    def factor(s: Position) -> Tensor:
        try:
            return as_matrix(idea(s[0]))
        except OverflowError:
            return torch.full(shape, torch.inf, dtype=torch.complex128)

    return factor


def verify_encoding(encoding: Encoding, measure: Measure) -> Report:
    exact = in_double(encoding)
    P = exact.basis.dense()

    def W(s: Position) -> Tensor:
        return P.mH @ exact.matrix.dense(*s) @ P

    def M(s: Position) -> Tensor:
        return features(exact, exact.query, s)

    realised = []
    for _ in range(12):
        s, t = (measure.position(FAR, exact.axes) for _ in range(2))
        realised.append(M(s).mH @ M(t) - W(minus(t, s)).real)
    laws = [
        *measure.definition(M, M, FAR, exact.axes),
        measure.law("", "M_sᴴ M_t = Re W_{t-s}", realised),
        *measure.representation(W, FAR, exact.axes),
    ]
    notes = []
    if exact.decay is not None:
        notes.append("the decay r^|t-s| multiplies the scores outside M_s, and is not measured")
    if exact.score_scale != 1:
        notes.append(f"the scores are scaled by {exact.score_scale:.4g} outside M_s, which is not measured")
    return Report(describe(exact), tuple(laws), tuple(notes))


def verify_outside(encoding: PositionalEncoding, measure: Measure) -> Report:
    exact = in_double(encoding)
    laws = measure.definition(lambda s: features(exact, exact.query, s), lambda s: features(exact, exact.key, s), NEAR)
    note = "outside the family: relative in expectation at most"
    return Report(composition(encoding), tuple(laws), (note,))


def verify_factor(M: Factor, subject: str, measure: Measure) -> Report:
    rows, columns = M((0,)).shape[-2:]
    laws = measure.definition(M, M, NEAR)
    if rows != columns:
        note = f"M_s is {rows} × {columns}: Proposition 3.2 speaks of square matrices, so it is not measured"
        return Report(subject, tuple(laws), (note,))
    M_0 = M((0,))
    return Report(subject, (*laws, *measure.representation(lambda s: M_0.mH @ M(s), NEAR)))


def verify_relative(W: Callable[[int], Any], measure: Measure) -> Report:
    measured = linearizability(W)
    rows, columns = measured.shape
    require(
        rows == columns, f"W_0 = I, so W is square; W(0) is {rows} × {columns}. linearizability(W) takes any shape."
    )
    W_0 = as_matrix(W(0)) - torch.eye(rows)
    laws = [
        measure.law("Definition 3.1", "W_0 = I", [W_0]),
        *measure.representation(bounded(W), NEAR),
    ]
    return Report("W(t-s)", tuple(laws), linearizability=measured)


def verify_map(f: Callable[[Tensor, int], Tensor], dim: int | None, measure: Measure) -> Report:
    if dim is None:
        raise LrpeError("verify(map=f) needs dim=, the size of the vectors that f takes.")
    generator = torch.Generator().manual_seed(measure.random.randrange(2**32))
    differences = []
    for _ in range(12):
        (s,) = measure.position(NEAR)
        x, y = torch.randn(2, dim, dtype=torch.float64, generator=generator)
        a, b = torch.randn(2, dtype=torch.float64, generator=generator).tolist()
        differences.append(f(a * x + b * y, s) - a * f(x, s) - b * f(y, s))
    linear = measure.law("Linear", "f(ax + by, s) = a f(x, s) + b f(y, s)", differences)

    def M(s: Position) -> Tensor:
        return torch.stack([f(column, s[0]) for column in torch.eye(dim, dtype=torch.float64)], -1).to(torch.complex128)

    report = verify_factor(M, f"f(x, s), x of size {dim}", measure)
    return Report(report.subject, (linear, *report.laws), report.notes)


def in_double(module: Module) -> Module:
    """A copy in float64 on the CPU, in evaluation; the caller's module is left alone."""
    return copy.deepcopy(module).to("cpu", torch.float64).eval()


@torch.no_grad()
def features(encoding: PositionalEncoding, encode: Callable[[Tensor, Any], Tensor], s: Position) -> Tensor:
    """M_s, by encoding the unit vectors at position s: (features, d), or (heads, features, d)."""
    d = encoding.head_dim
    units = torch.eye(d, dtype=torch.float64)
    units = units if encoding.heads is None else units.expand(encoding.heads, d, d)
    positions = torch.tensor(s if encoding.axes > 1 else s[0]).expand(d, *(encoding.axes,) * (encoding.axes > 1))
    return encode(units, encoding.table(positions, torch.float64)).mT.to(torch.complex128)


def describe(encoding: Encoding) -> str:
    heads = "" if encoding.heads is None else f", {encoding.heads} heads"
    return f"{composition(encoding)}, head_dim {encoding.head_dim}{heads}, {encoding.feature_dim} features"


def composition(encoding: PositionalEncoding) -> str:
    """P × Λ, or what stands for both outside the family."""
    parts = (encoding.basis, encoding.matrix) if isinstance(encoding, Encoding) else (encoding,)
    return " × ".join(type(part).__name__ for part in parts)
