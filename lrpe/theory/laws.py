"""The laws of the family as residuals, and the report of those that were measured."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from lrpe.theory.linearizability import Linearizability


@dataclass(frozen=True)
class Law:
    """One equation and by how much it fails: the largest difference of its two sides, on vectors of length 1.

    The residual is nan if there was too little to measure it on; then the law does not hold, nor does it fail.
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
        laws: each with its residual and its tolerance.
        tested: at which positions, with how many vectors and in which precision. Nothing is said beyond these.
        notes: what was not measured, and why.
        linearizability: of a relative matrix.
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
