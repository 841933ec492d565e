"""verify: measure whether an encoding, or an idea for one, obeys Definition 3.1 and Proposition 3.2, or a cocycle.

Definition 3.1: (M_s q)ᴴ (M_t k) = qᴴ W_{t-s} k with W_0 = I. Proposition 3.2: then W_s can be chosen unitary with
W_{t-s} = W_sᴴ W_t. So s ↦ W_s is a unitary representation of the integers, fixed by W_1: W_s = W_1^s.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from lrpe.encodings.angles import Angles
from lrpe.encodings.basis import Basis, Identity
from lrpe.encodings.encoding import Encoding, PositionalEncoding
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.encodings.position_matrix import PositionMatrix
from lrpe.errors import LrpeError, require
from lrpe.theory.cocycle import describe_equal_steps, describe_test, laws_of_steps, laws_of_transition
from lrpe.theory.laws import Law, Measure, Report
from lrpe.theory.linearizability import linearizability
from lrpe.theory.probes import Images, Places, images_of_factor, images_of_map, images_of_matrix, images_of_rows
from lrpe.theory.rank_growth import as_matrix
from lrpe.theory.token_rules import Rule, TokenRules

_DENSE = 128  # dense matrices are tested at every position up to this one
_Module = TypeVar("_Module", bound=nn.Module)


def verify(
    subject: nn.Module | Callable[[int], Any] | None = None,
    *,
    relative: Callable[[int], Any] | None = None,
    map: Callable[[Tensor, int], Tensor] | None = None,
    transition: Callable[[Tensor], Tensor] | None = None,
    steps: Rule | None = None,
    log_decay: Rule | None = None,
    dim: int | None = None,
    tolerance: float | None = None,
    from_zero: bool = False,
    seed: int = 0,
) -> Report:
    """Measure the laws on an encoding, or on an idea: a factor M(s), a relative matrix W(s), or a map f(x, s).

    Every position from -2048 to 2048 is tested, and some up to 10⁶, with three random vectors; what is computed in less
    than float64 is tested up to 2048. A table that ends earlier is tested to its end. ``report.tested`` says so.
    Linearity is tested on vectors of lengths 1e-4, 1 and 1e4.

    With ``steps``, ``log_decay`` or ``transition`` each token τ brings its own step U_τ and decay r_τ. Then the laws
    are those of the cocycle W(t←s) = U_t ⋯ U_{s+1}, of its split into M_t and M_s, of decay and causality, and for
    equal steps Definition 3.1. They are measured on random tokens, or on the given numbers.

    Args:
        subject: an encoding, its P or its Λ; a function from a position to the matrix M_s; or, with ``dim``, any
            nn.Module that is called with rows x (..., n, dim) and integer positions (n,) or (batch, n).
        relative: a function from an offset t-s to the matrix (or number) W_{t-s}; its linearizability is measured too.
        map: a function of a vector of size ``dim`` and a position; it must be linear in the vector.
        transition: a function from tokens x (n, dim) to the matrix U_τ of each, (n, d, d).
        steps: token-dependent steps u_τ of an encoding, (n,), or (n, angles) with one per angle; or a function from
            tokens x (n, dim) to them. Token τ turns by u_τ·α.
        log_decay: log r_τ ≤ 0, (n,), beside the steps or a transition; or a function from tokens to it.
        dim: the size of the vectors that ``map``, or a module, takes, or of the tokens.
        tolerance: the largest residual that still holds. If None it follows from the dtype of what the subject returns:
            1e-8 for float64, 2e-3 for float32, whose angles may be rounded, and 4 epsilons more for half precision.
        from_zero: whether the subject has no negative positions.
        seed: the seed of the far positions, the offsets and the vectors.

    Returns:
        A Report, truthy if every law holds.

    >>> quarter_turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> bool(verify(lambda s: torch.linalg.matrix_power(quarter_turn, s)))
    True
    >>> bool(verify(lambda s: 1.01**s * torch.eye(2)))
    False
    >>> bool(verify(Orthogonal(4), steps=lambda x: x[:, 0].sigmoid(), dim=3))
    True
    """
    given = [value for value in (subject, relative, map, transition) if value is not None]
    require(
        len(given) == 1,
        f"verify takes exactly one of subject, relative=W(s), map=f(x, s) and transition=U(x); got {len(given)}.",
    )
    brought = {"transition": transition, "steps": steps, "log_decay": log_decay}
    rules = TokenRules({name: _exact_rule(rule) for name, rule in brought.items() if rule is not None}, dim, seed)
    if rules.rules:
        return _verify_tokens(subject, rules, tolerance)
    if relative is not None:
        return _verify_relative(relative, Measure(relative(0), tolerance, from_zero, seed))
    if map is not None:
        width = _known_dim(dim, "verify(map=f)", "f")
        zero = torch.zeros(width, dtype=torch.float64)
        return _verify_map(map, width, Measure(map(zero, 0), tolerance, from_zero, seed))
    if isinstance(subject, nn.Module):
        return _verify_module(subject, dim, tolerance, from_zero, seed)
    if not callable(subject):
        raise LrpeError(
            f"subject must be an encoding of queries and keys or a function M(s); got {type(subject).__name__}."
        )
    return _verify_factor(subject, "M(s)", Measure(subject(0), tolerance, from_zero, seed))


def _known_dim(dim: int | None, what: str, who: str) -> int:
    if dim is None:
        raise LrpeError(f"dim must be given for {what}; got dim=None. Pass the size of the vectors that {who} takes.")
    return dim


def _verify_module(subject: nn.Module, dim: int | None, tolerance: float | None, from_zero: bool, seed: int) -> Report:
    subject = _as_encoding(subject)
    exact = _in_double(subject)
    measure = Measure(torch.zeros(1, dtype=torch.float64), tolerance, from_zero, seed)
    if isinstance(exact, Encoding):
        return _verify_encoding(subject, exact, measure)  # type: ignore[arg-type]
    if isinstance(exact, PositionalEncoding):
        return _verify_outside(exact, measure)
    if dim is not None:
        row, start = torch.zeros(1, dim, dtype=torch.float64), torch.zeros(1, dtype=torch.long)
        return _verify_rows(exact, dim, Measure(exact(row, start), tolerance, from_zero, seed))
    try:
        first = subject(0)
        as_matrix(first)
    except (TypeError, AttributeError, LrpeError) as error:
        raise LrpeError(
            f"verify takes an encoding of queries and keys, a module M(s), or with dim= one that is called with rows x "
            f"and positions; {type(subject).__name__}(0) is not a matrix: {error} For a canonical form, use "
            "linearizability(form.relative)."
        ) from None
    return _verify_factor(subject, type(subject).__name__, Measure(first, tolerance, from_zero, seed))


def _as_encoding(subject: nn.Module) -> nn.Module:
    """Return a P or a Λ as the encoding in which it is the only factor, and other modules unchanged."""
    if isinstance(subject, PositionMatrix):
        return Encoding(Identity(subject.dim), subject)
    if isinstance(subject, Basis):
        return Encoding(subject, Orthogonal(subject.dim, Angles(torch.zeros(0))))
    return subject


def _verify_tokens(subject: Any, rules: TokenRules, tolerance: float | None) -> Report:
    """Verify what each token brings: a transition of its own, or a step of an encoding."""
    if "transition" in rules.rules:
        require("steps" not in rules.rules, "A transition is a whole step; got steps= beside transition=. Omit one.")
        return _verify_transition(rules, tolerance)
    exact = _in_double(_as_encoding(subject)) if isinstance(subject, nn.Module) else None
    if not isinstance(exact, Encoding):
        raise LrpeError(
            f"{' and '.join(rules.rules)} must come with an Encoding whose Λ has angles; got "
            f"{type(subject).__name__}. For steps of another form, pass transition=U(x)."
        )
    measure = Measure(torch.zeros(1, dtype=torch.float64), tolerance, False, rules.seed)
    laws = laws_of_steps(exact, rules, measure)
    notes = (describe_equal_steps(), *rules.notes, *_notes_of(exact))
    return Report(f"{_describe(exact)}, token-dependent steps", tuple(laws), describe_test(rules, measure), notes)


def _verify_transition(rules: TokenRules, tolerance: float | None) -> Report:
    U = rules.values("transition")
    measure = Measure(U, tolerance, False, rules.seed)
    note = "W(t←s) = U_t ⋯ U_{s+1} is a cocycle by definition, so that law is not measured"
    laws, name = laws_of_transition(rules, U, measure), f"U(x), x of size {rules.width}"
    return Report(name, tuple(laws), describe_test(rules, measure), (note, *rules.notes))


def _exact_rule(rule: Rule) -> Rule:
    """Return a module in float64, and functions and numbers unchanged."""
    return _in_double(rule) if isinstance(rule, nn.Module) else rule


def _verify_encoding(given: Encoding, exact: Encoding, measure: Measure) -> Report:
    axes, heads, dim = exact.axes, exact.heads, exact.head_dim
    places, vectors = measure.places(axes), measure.vectors(dim)
    encoded = images_of_rows(exact, vectors, axes, heads)(places.every())
    P, few = exact.basis.dense(), measure.places(axes, near=_DENSE)
    steps = [P.mH @ exact.matrix.dense(*unit) @ P for unit in few.units]
    relative = images_of_matrix(lambda s: P.mH @ (exact.matrix.dense(*s) @ (P @ vectors.mT.to(P.dtype))))(few.every())
    laws = (
        measure.linear(exact, dim, axes, heads),
        *measure.definition(encoded, encoded, vectors, places),
        *_laws_of_key_phase(exact, encoded, measure),
        measure.realised(encoded, relative, vectors, places),
        *measure.representation(relative, vectors, few, steps),
        measure.batches(exact, dim, 2 * (heads or 2), axes),
        measure.precision(given, exact),
    )
    return Report(_describe(exact), laws, measure.tested(encoded, places), _notes_of(exact))


def _laws_of_key_phase(exact: Encoding, encoded: Images, measure: Measure) -> list[Law]:
    """Measure the phase δ of keys, if they have one; ``encoded`` are queries."""
    if not exact.matrix.has_key_phase:
        return []

    def encode_keys(rows: Tensor, where: Tensor) -> Tensor:
        return exact.key(rows, exact.table(where, rows.dtype))

    places, vectors = measure.places(exact.axes), measure.vectors(exact.head_dim)
    keys = images_of_rows(encode_keys, vectors, exact.axes, exact.heads)(places.every())
    P = exact.basis.dense().to(torch.complex128)
    return measure.key_phase(encoded, keys, vectors, places, P.mH @ exact.matrix.dense_key_phase() @ P)


def _notes_of(encoding: Encoding) -> tuple[str, ...]:
    notes = []
    if encoding.decay is not None:
        notes.append("the decay r^|t-s| multiplies the scores outside M_s, and is not measured")
    if encoding.score_scale != 1:
        notes.append(f"the scores are scaled by {encoding.score_scale:.4g} outside M_s, which is not measured")
    return tuple(notes)


def _verify_outside(exact: PositionalEncoding, measure: Measure) -> Report:
    places, vectors = measure.places(exact.axes), measure.vectors(exact.head_dim)

    def images(encode: Callable[[Tensor, Any], Tensor]) -> Images:
        def rows(x: Tensor, where: Tensor) -> Tensor:
            return encode(x, exact.table(where, x.dtype))

        return images_of_rows(rows, vectors, exact.axes, exact.heads)(places.every())

    queries, keys = images(exact.query), images(exact.key)
    laws = measure.definition(queries, keys, vectors, places)
    note = "outside the family: relative in expectation at most"
    return Report(composition(exact), tuple(laws), measure.tested(queries, places), (note,))


def _verify_rows(module: nn.Module, dim: int, measure: Measure) -> Report:
    """Verify a module called with rows and positions, as in other libraries."""
    places, vectors = measure.places(), measure.vectors(dim)
    images = images_of_rows(module, vectors, 1, None)(places.every())
    laws = [measure.linear(module, dim), *measure.definition(images, images, vectors, places)]
    notes: tuple[str, ...] = ()
    try:
        laws.append(measure.batches(module, dim, None))
    except (RuntimeError, LookupError, LrpeError) as error:
        notes = (f"it does not take positions of shape (batch, n), so batches are not measured: {error}",)
    name = f"{type(module).__name__}(x, positions)"
    return Report(name, tuple(laws), measure.tested(images, places), notes)


def _verify_factor(M: Callable[[int], Any], name: str, measure: Measure) -> Report:
    places, vectors = measure.places(), measure.vectors(as_matrix(M(0)).shape[1])
    images = images_of_factor(M, vectors)(places.every())
    return _report_factor(images, lambda s: as_matrix(M(s)), vectors, name, places, measure)


def _verify_map(f: Callable[[Tensor, int], Tensor], dim: int, measure: Measure) -> Report:
    def rows(x: Tensor, where: Tensor) -> Tensor:
        return torch.stack([f(row, s) for row, s in zip(x, where.tolist(), strict=True)])

    def M(s: int) -> Tensor:
        return as_matrix(torch.stack([f(unit, s) for unit in torch.eye(dim, dtype=torch.float64)], -1))

    places, vectors = measure.places(), measure.vectors(dim)
    images = images_of_map(f, vectors)(places.every())
    report = _report_factor(images, M, vectors, f"f(x, s), x of size {dim}", places, measure)
    return replace(report, laws=(measure.linear(rows, dim), *report.laws))


def _report_factor(
    images: Images, M: Callable[[int], Tensor], vectors: Tensor, name: str, places: Places, measure: Measure
) -> Report:
    """Report the laws of a factor with images M_s x; Proposition 3.2 only if M is square, on W_s = M_0ᴴ M_s."""
    M_0 = M(0)
    rows, columns = M_0.shape
    laws = measure.definition(images, images, vectors, places)
    if rows != columns:
        note = f"M_s is {rows} × {columns}: Proposition 3.2 is about square matrices, so it is not measured"
        return measure.report(name, laws, images, places, note)
    relative = replace(images, values=M_0.mH @ images.values.to(M_0.dtype))
    steps = [M_0.mH @ M(1)] if (1,) in images.rows else []
    return measure.report(name, laws + measure.representation(relative, vectors, places, steps), images, places)


def _verify_relative(W: Callable[[int], Any], measure: Measure) -> Report:
    W_0 = as_matrix(W(0))
    rows, columns = W_0.shape
    require(
        rows == columns,
        f"relative(0) must be square, as W_0 = I; got {rows} × {columns}. linearizability(W) takes any shape.",
    )
    places, vectors = measure.places(), measure.vectors(columns)
    images = images_of_factor(W, vectors)(places.every())
    steps = [as_matrix(W(1))] if (1,) in images.rows else []
    laws = [
        measure.law("Definition 3.1", "W_0 = I", W_0 - torch.eye(rows)),
        *measure.representation(images, vectors, places, steps),
    ]
    report = measure.report("W(t-s)", laws, images, places)
    return replace(report, linearizability=linearizability(W, causal=measure.from_zero))


def _in_double(module: _Module) -> _Module:
    """Return a copy in float64 on the CPU, in evaluation mode, so that the caller's module is unchanged."""
    return copy.deepcopy(module).to("cpu", torch.float64).eval()


def _describe(encoding: Encoding) -> str:
    heads = "" if encoding.heads is None else f", {encoding.heads} heads"
    return f"{composition(encoding)}, head_dim {encoding.head_dim}{heads}, {encoding.feature_dim} features"


def composition(encoding: PositionalEncoding) -> str:
    """Return "P × Λ", or the class name of an encoding outside the family."""
    parts = (encoding.basis, encoding.matrix) if isinstance(encoding, Encoding) else (encoding,)
    return " × ".join(type(part).__name__ for part in parts)
