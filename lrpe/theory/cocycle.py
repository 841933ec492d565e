"""The law of token-dependent steps: the cocycle W(t←s) = U_t ⋯ U_{s+1}, and its split by sums of phases and log-decays.

Token τ brings a unitary step U_τ and a decay r_τ ≤ 1. If the steps commute, M_t = U_t ⋯ U_1 gives every score:
(M_t q)ᴴ (M_s k) = (W(t←s) q)ᴴ k for s ≤ t, times the decay exp(c_t - c_s) with c_t = Σ_{τ≤t} log r_τ. Equal steps are
Definition 3.1 again: W(t←s) = W_1^{t-s}.

Everything is measured on columns of shape (heads, tokens, d, vectors), never on the n² matrices W(t←s) themselves.
"""

import torch
from torch import Tensor

from lrpe.encodings.encoding import Encoding
from lrpe.errors import require
from lrpe.theory.laws import Law, Measure
from lrpe.theory.probes import FAR, NEAR, VECTORS, images_of_rows
from lrpe.theory.token_rules import TokenRules

_PAIRED = 32  # the first tokens, of which every pair is measured
_TRIPLES = 500


@torch.no_grad()
def laws_of_steps(encoding: Encoding, rules: TokenRules, measure: Measure) -> list[Law]:
    """Return the laws of an encoding in float64 with token-dependent steps, and Definition 3.1 for equal steps."""
    u, x = _steps(encoding, rules)[:_PAIRED], measure.vectors(encoding.head_dim)
    walk = _Walk(encoding, u)
    U = walk.transitions()
    return [
        *walk.cocycle(U, x, measure),
        *_split(U, walk.features(x), x, rules, measure),
        *_equal_steps(encoding, x, measure),
    ]


@torch.no_grad()
def laws_of_transition(rules: TokenRules, U: Tensor, measure: Measure) -> list[Law]:
    """Return the laws of any transitions U_τ, (n, d, d). W(t←s) is their product, so it is a cocycle by definition."""
    require(
        U.ndim == 3 and U.shape[1] == U.shape[2],
        lambda: f"transition must return one square matrix per token, (n, d, d); got {tuple(U.shape)}.",
    )
    U, x = U[None, :_PAIRED].to(torch.complex128), measure.vectors(U.shape[-1])
    from_start = torch.cat([torch.eye(U.shape[-1], dtype=U.dtype)[None, None], U], 1)
    M = _products(from_start, x.mT.to(U.dtype))[:, 1:, 0]  # M_t x = W(t←0) x, with a token 0 that does not step
    return _split(U, M, x, rules, measure)


def describe_test(rules: TokenRules, measure: Measure) -> str:
    """Return what was measured, for the report."""
    triples = "" if "transition" in rules.rules else f", {_TRIPLES} triples"
    return (
        f"{rules.tested}; every pair of {min(rules.count, _PAIRED)}{triples}; {VECTORS} random vectors of seed "
        f"{measure.seed}; tolerance {measure.tolerance:.1e} for values rounded by {measure.rounding:.0e}"
    )


def describe_equal_steps() -> str:
    return f"equal steps are tested at every position from {-NEAR} to {NEAR}, and at some up to ±{FAR:,}"


def _steps(encoding: Encoding, rules: TokenRules) -> Tensor:
    """Return u_τ in float64: (n,), or (n, angles) if each angle has its own; 1 for every token if not given."""
    if "steps" not in rules.rules:
        return torch.ones(rules.count, dtype=torch.float64)
    u, count = rules.values("steps"), encoding.angle_count
    require(not u.is_complex(), "steps must be real, as a decay is not a step; pass its logarithm as log_decay.")
    require(
        tuple(u.shape[1:]) in ((), (count,)),
        lambda: f"steps must have shape (n,), or (n, angles) with angles={count}; got {tuple(u.shape)}.",
    )
    return u.double()


class _Walk:
    """An encoding at the phases p_t = Σ_{τ≤t} u_τ, with W(t←s) = Pᴴ Λ^(p_t - p_s) P."""

    def __init__(self, encoding: Encoding, u: Tensor):
        self.encoding, self.u, self.p = encoding, u, u.cumsum(0)
        self.P = encoding.basis.dense().to(torch.complex128)
        self.heads = encoding.heads or 1

    def _carry(self, phases: Tensor, columns: Tensor) -> Tensor:
        """Return Pᴴ Λ^(p) P x for each phase p, as the encoding's own Λ computes it on real rows."""
        matrix = self.encoding.matrix
        rows = (self.P @ columns).movedim(-1, 0)  # (vectors, heads, n, d)
        table = matrix.phase_table(phases[None, None], torch.float64)
        if matrix.is_complex:
            re, im = matrix.transform(torch.cat([rows.real, rows.imag], -1), table).chunk(2, -1)
        else:
            re, im = (matrix.transform(part.contiguous(), table) for part in (rows.real, rows.imag))
        return self.P.mH @ torch.complex(re, im).movedim(0, -1)

    def _columns(self, x: Tensor, count: int) -> Tensor:
        """Repeat vectors (vectors, d) as the columns of ``count`` phases."""
        return x.mT.to(torch.complex128).expand(self.heads, count, -1, -1)

    def transitions(self) -> Tensor:
        """Return U_τ = Pᴴ Λ^(u_τ) P: (heads, n, d, d)."""
        unit_columns = torch.eye(self.encoding.head_dim, dtype=torch.float64)
        return self._carry(self.u, self._columns(unit_columns, len(self.u)))

    def features(self, x: Tensor) -> Tensor:
        """Return M_t x for every token: (heads, n, features, vectors)."""
        rows = x[:, None, None].expand(-1, self.heads, len(self.p), -1)
        table = self.encoding.phase_table(self.p[None, None], torch.float64)
        return self.encoding(rows, table=table).movedim(0, -1)

    def cocycle(self, U: Tensor, x: Tensor, measure: Measure) -> list[Law]:
        n, p = len(self.p), self.p
        t, s = torch.tril_indices(n, n)
        W = self._carry(p[t] - p[s], self._columns(x, len(t)))
        drawn = torch.randint(n, (_TRIPLES, 3), generator=torch.Generator().manual_seed(measure.seed))
        first, middle, last = drawn.sort(-1).values.unbind(-1)
        start = self._columns(x, _TRIPLES)
        halves = self._carry(p[last] - p[middle], self._carry(p[middle] - p[first], start))
        return [
            measure.law("Cocycle", "W(t←t) = I", W[:, t == s] - x.mT),
            measure.law("", "W(t←s) = W(t←u) W(u←s)", self._carry(p[last] - p[first], start) - halves),
            measure.law("", "W(t←s) = U_t ⋯ U_{s+1}", W - _products(U, x.mT.to(U.dtype))[:, t, s]),
        ]


def _split(U: Tensor, features: Tensor, x: Tensor, rules: TokenRules, measure: Measure) -> list[Law]:
    """Measure what lets a sum over keys be linear in n: unitary steps that commute, a split, decay and causality."""
    columns, n = x.mT.to(U.dtype), U.shape[1]
    once = U @ columns
    twice = (U @ once.movedim(1, -2).flatten(-2)[:, None]).unflatten(-1, (n, -1))  # U_σ U_τ x: (heads, σ, d, τ, ...)
    return [
        measure.law("Unitary", "U_τᴴ U_τ = I", once.mH @ once - x @ x.mT),
        measure.law("Commuting", "U_σ U_τ = U_τ U_σ", twice - twice.transpose(1, 3)),
        _scores(U, features, columns, rules, measure),
        *rules.decay(measure),
        *rules.causality(measure),
    ]


def _scores(U: Tensor, features: Tensor, columns: Tensor, rules: TokenRules, measure: Measure) -> Law:
    """Compare the scores of the features with those of the products r_t U_t ⋯ r_{s+1} U_{s+1}."""
    n, log_r = U.shape[1], rules.log_decay()
    t, s = torch.tril_indices(n, n)
    equation = "(M_t q)ᴴ (M_s k) = (W(t←s) q)ᴴ k" if log_r is None else "e^{c_t-c_s} (M_t q)ᴴ (M_s k) = (W(t←s) q)ᴴ k"
    log_r = torch.zeros(n, dtype=torch.float64) if log_r is None else log_r[:n]
    c = log_r.cumsum(0)
    W = _products(U * log_r.exp()[:, None, None], columns)[:, t, s]
    expected = W.mH @ columns
    weight = (c[t] - c[s]).exp()[:, None, None]
    scores = features[:, t].mH @ features[:, s] * weight
    residual = scores - (expected if scores.is_complex() else expected.real)
    # Relative to the weight where it exceeds 1, or a decay above 1 would break this law too, by rounding.
    return measure.law("Split", equation, residual / weight.clamp(min=1))


def _products(U: Tensor, columns: Tensor) -> Tensor:
    """Return U_t ⋯ U_{s+1} x by multiplication, for s ≤ t, and 0 elsewhere: (heads, t, s, d, vectors)."""
    heads, n, d, _ = U.shape
    carried = torch.zeros(heads, d, n, columns.shape[-1], dtype=U.dtype)
    rows = []
    for t in range(n):
        carried = (U[:, t] @ carried.flatten(-2)).unflatten(-1, (n, -1))
        carried[:, :, t] = columns
        rows.append(carried)
    return torch.stack(rows, 1).movedim(3, 2)


def _equal_steps(encoding: Encoding, x: Tensor, measure: Measure) -> list[Law]:
    """Measure Definition 3.1 at the phases 0, ±1, ±2, ... of equal steps, and that they are positions."""
    places, heads = measure.places(), encoding.heads

    def at_phases(rows: Tensor, where: Tensor) -> Tensor:
        return encoding(rows, table=encoding.phase_table(where.double()[None, None], rows.dtype))

    every = places.every()
    stepped = images_of_rows(at_phases, x, 1, heads)(every)
    placed = images_of_rows(encoding, x, 1, heads)(every)
    same = measure.law("Equal steps", "M_p = M_s at the phase p = s", stepped.values - placed.values)
    return [same, *measure.definition(stepped, stepped, x, places)]
