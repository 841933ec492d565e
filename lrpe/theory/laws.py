"""The laws of the family as residuals (Definition 3.1, Proposition 3.2, encoding of rows), and their report."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from lrpe.encodings.encoding import Encoding
from lrpe.theory.linearizability import Linearizability
from lrpe.theory.probes import FAR, NEAR, VECTORS, Images, Places, draw_places, unit_vectors
from lrpe.theory.rank_growth import rounding_of

_Rows = Callable[[Tensor, Tensor], Tensor]  # x (..., n, d) and positions (n,) or (batch, n) to features
_SCALES = (1e-4, 1.0, 1e4)
_POWERS = (7, 64, 999)  # powers of W_1 to compare; rounding grows with the power
_LEAST = 16  # fewer positions than this do not decide a law of a table
_LOW = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Law:
    """One equation and its residual: the largest difference of its two sides, on vectors of length 1.

    The residual is nan if there was too little to measure; the verdict is then "cannot tell".
    """

    name: str
    equation: str
    residual: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.residual <= self.tolerance

    @property
    def verdict(self) -> str:
        return "holds" if self.holds else "cannot tell" if math.isnan(self.residual) else "FAILS"


@dataclass(frozen=True)
class Report:
    """The laws measured on one subject; truthy when all hold, and prints as a table.

    Attributes:
        subject: what was measured.
        laws: the laws, each with its residual and its tolerance.
        tested: the positions, vectors and precision of the measurement, which proves nothing beyond them.
        notes: what was not measured, and why.
        linearizability: the verdict on a relative matrix, else None.
    """

    subject: str
    laws: tuple[Law, ...]
    tested: str = ""
    notes: tuple[str, ...] = ()
    linearizability: Linearizability | None = None

    def __bool__(self) -> bool:
        return all(law.holds for law in self.laws)

    def __str__(self) -> str:
        width = max(len(law.equation) for law in self.laws)
        rows = [f"  {law.name:<16}{law.equation:<{width}}  {law.residual:9.1e}  {law.verdict}" for law in self.laws]
        lines = [self.subject, *rows, f"  tested: {self.tested}", *(f"  {note}" for note in self.notes)]
        if self.linearizability is not None:
            lines.append(str(self.linearizability))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        laws = [
            asdict(law)
            | {"holds": law.holds, "verdict": law.verdict}
            | {"residual": law.residual if math.isfinite(law.residual) else None}
            for law in self.laws
        ]
        measured = None if self.linearizability is None else self.linearizability.to_dict()
        return {
            "subject": self.subject,
            "holds": bool(self),
            "laws": laws,
            "tested": self.tested,
            "notes": list(self.notes),
            "linearizability": measured,
        }


class Measure:
    """Measures the laws at chosen positions and vectors, to a tolerance that follows from the subject's dtype."""

    def __init__(self, like: Any, tolerance: float | None, from_zero: bool, seed: int):
        rounding = rounding_of(like)
        self.exact = rounding.value <= 2.0**-53
        self.rounding = rounding.value
        self.tolerance = tolerance if tolerance is not None else 1e-8 if self.exact else 2e-3 + 8 * rounding.value
        self.from_zero, self.seed = from_zero, seed

    def places(self, axes: int = 1, near: int = NEAR) -> Places:
        return draw_places(axes, near, FAR if self.exact else NEAR, self.from_zero, self.seed)

    def vectors(self, dim: int) -> Tensor:
        return unit_vectors(dim, self.seed)

    def law(self, name: str, equation: str, *differences: Tensor) -> Law:
        """Return the law with its largest difference: inf if one is nan, nan if there are none."""
        sizes = [float(d.abs().max()) for d in differences if d.numel()]
        largest = max(sizes, default=math.nan)
        return Law(name, equation, math.inf if any(map(math.isnan, sizes)) else largest, self.tolerance)

    def linear(self, encode: _Rows, dim: int, axes: int = 1, heads: int | None = None) -> Law:
        """Measure linearity on vectors of each length, and that the gain is the same for all lengths.

        A gain that depends on the length looks linear among vectors of one length.
        """
        places = self.places(axes)
        where = torch.tensor([*places.near[:: len(places.near) // 12], *places.far])
        x, y = unit_vectors(dim, self.seed + 1, 2 * len(where)).unflatten(0, (2, -1))
        x, y = (rows if heads is None else rows.expand(heads, -1, -1) for rows in (x, y))
        where = where if axes > 1 else where[:, 0]
        with torch.no_grad():
            images = [[encode(c * rows, where) / c for rows in (x, y, x - 2 * y)] for c in _SCALES]
        additive = [of_both - of_x + 2 * of_y for of_x, of_y, of_both in images]
        alike = [at - at_next for pair in pairwise(images) for at, at_next in zip(*pair, strict=True)]
        return self.law("Linear", "M_s (ax + by) = a M_s x + b M_s y", *additive, *alike)

    def definition(self, queries: Images, keys: Images, vectors: Tensor, places: Places) -> list[Law]:
        """Measure Definition 3.1 on the factors: M_sᴴ M_t depends on t-s alone, and is I for t = s."""
        products = {c: queries.products(keys, pairs) for c, pairs in places.pairs.items()}
        on_spot = products[places.zero] - vectors @ vectors.mT
        return [
            self.law("Definition 3.1", "M_{s+c}ᴴ M_{t+c} = M_sᴴ M_t", *(p - p[:1] for p in products.values())),
            self.law("", "W_0 = M_sᴴ M_s = I", on_spot),
        ]

    def key_phase(self, queries: Images, keys: Images, vectors: Tensor, places: Places, D: Tensor) -> list[Law]:
        """Measure that keys with a phase, M_t D, keep scores relative, and that D is W_0, unitary."""
        products = {c: queries.products(keys, pairs) for c, pairs in places.pairs.items()}
        x = vectors.to(D.dtype)
        return [
            self.law("Key phase", "M_{s+c}ᴴ M_{t+c} D = M_sᴴ M_t D", *(p - p[:1] for p in products.values())),
            self.law("", "M_sᴴ M_s D = Re D", products[places.zero] - (x @ D @ x.mT).real),
            self.law("", "Dᴴ D = I", (D.mH @ D - torch.eye(D.shape[-1], dtype=D.dtype)) @ x.mT),
        ]

    def realised(self, encoded: Images, relative: Images, vectors: Tensor, places: Places) -> Law:
        """Measure whether the features give the scores of the dense matrices."""
        common = [s for s in relative.rows if s in encoded.rows]
        scores = encoded.products(encoded, [(places.zero, s) for s in common])
        W = relative.at(common)
        return self.law("", "M_sᴴ M_t = Re W_{t-s}", scores - (vectors.to(W.dtype) @ W).real)

    def representation(self, relative: Images, vectors: Tensor, places: Places, steps: Sequence[Tensor]) -> list[Law]:
        """Measure Proposition 3.2 on W_s x: unitary, multiplicative, and powers of each axis's one-step matrix."""
        x = vectors.to(relative.values.dtype)
        unitary = relative.values.mH @ relative.values - x @ x.mT
        products = {c: relative.products(relative, pairs) for c, pairs in places.pairs.items()}
        multiplicative = [p - x @ relative.at([c]) for c, p in products.items() if c in relative.rows]
        powers = [d for axis, W_1 in enumerate(steps) for d in self._powers(relative, x, places, axis, W_1)]
        return [
            self.law("Proposition 3.2", "W_sᴴ W_s = I", unitary),
            self.law("", "W_{t-s} = W_sᴴ W_t", *multiplicative),
            self.law("", "W_s = W_1^s", *powers),
        ]

    def _powers(self, relative: Images, x: Tensor, places: Places, axis: int, W_1: Tensor) -> list[Tensor]:
        """Return the differences for one step from every position to the next, and for a few powers."""
        unit = places.units[axis]
        pairs = [(s, t) for s, t in places.pairs[unit] if s in relative.rows and t in relative.rows]
        stepped = relative.at([t for _, t in pairs]) - W_1 @ relative.at([s for s, _ in pairs])
        ahead = {m: tuple(m * a for a in unit) for m in _POWERS if 8 * m * self.rounding <= self.tolerance}
        return [
            stepped,
            *(
                relative.at([s]) - torch.linalg.matrix_power(W_1, m) @ x.mT
                for m, s in ahead.items()
                if s in relative.rows
            ),
        ]

    def batches(self, encode: _Rows, dim: int, lead: int | None, axes: int = 1) -> Law:
        """Measure whether rows of a batch are encoded as they are alone; n ≠ d, so that axes cannot be confused."""
        n = 5 if dim != 5 else 7
        heads = () if lead is None else (lead,)
        x = unit_vectors(dim, self.seed + 2, 2 * n * (lead or 1)).reshape(2, *heads, n, dim)
        drawn = [*self.places(axes).near[7 : 7 + n], *reversed(self.places(axes).near[-n:])]
        where = torch.tensor(drawn).reshape(2, n, axes)
        where = where if axes > 1 else where[..., 0]
        with torch.no_grad():
            whole = encode(x, where)
            alone = [torch.cat([encode(x[b][..., [i], :], where[b, [i]]) for i in range(n)], -2) for b in range(2)]
        return self.law("Batches", "rows of a batch are encoded as alone", whole - torch.stack(alone))

    def precision(self, given: Encoding, exact: Encoding) -> Law:
        """Measure the error in lower precision, in units of its rounding plus that of angles in float32."""
        encode = copy.deepcopy(given).to("cpu").eval()
        places = self.places(exact.axes)
        where = torch.tensor(places.near[:: len(places.near) // 64])
        where = where if exact.axes > 1 else where[:, 0]
        x = unit_vectors(exact.head_dim, self.seed + 3, len(where))
        x = x if exact.heads is None else x.expand(exact.heads, -1, -1)
        units = []
        with torch.no_grad():
            for dtype in _LOW:
                low = x.to(dtype)
                unit = torch.finfo(dtype).eps + NEAR * torch.finfo(torch.float32).eps
                units.append((encode(low, where).double() - exact(low.double(), where)) / unit)
        law = self.law("Precision", "M_s x in float32, bfloat16, float16, in units of rounding", *units)
        return Law(law.name, law.equation, law.residual, 4.0)

    def tested(self, images: Images, places: Places) -> str:
        known = [s for s in places.near if s in images.rows]
        lowest, highest = min(min(s) for s in known), max(max(s) for s in known)
        grid = "" if len(places.zero) == 1 else " of each axis"
        far = sum(s in images.rows for s in places.far)
        beyond = f", {far} up to {'' if self.from_zero else '±'}{FAR:,}" if far else ""
        where = f"every position from {lowest} to {highest}{grid}{beyond}"
        return (
            f"{where}; {len(places.pairs)} offsets and {VECTORS} random vectors of seed {self.seed}; tolerance "
            f"{self.tolerance:.1e} for values rounded by {self.rounding:.0e}"
        )

    def report(self, name: str, laws: Sequence[Law], images: Images, places: Places, *notes: str) -> Report:
        """Return the report of a function, which may be a table that ends before the last tested position."""
        known = [s[0] for s in places.near if s in images.rows]
        if len(known) < _LEAST:
            laws = [replace(law, residual=math.nan) for law in laws]
        if len(known) < len(places.near) or any(s not in images.rows for s in places.far):
            notes = (f"{name} is known from {min(known)} to {max(known)} alone; nothing is said beyond", *notes)
        return Report(name, tuple(laws), self.tested(images, places), notes)
