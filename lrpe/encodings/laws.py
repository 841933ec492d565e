"""The laws of the family as residuals: Definition 3.1 on factors, Proposition 3.2 on square matrices."""

import math
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from lrpe.encodings.linearizability import Linearizability

Position = tuple[int, ...]  # one integer an axis
Factor = Callable[[Position], Tensor]  # s ↦ M_s or W_s as complex128, (..., features, d)

SMALL_POSITIONS = (-2, -1, 0, 1, 2, 3)
POWERS = 1000  # the largest power of W_1 that is formed: its rounding grows with it


@dataclass(frozen=True)
class Law:
    """One equation and by how much it fails: the largest entry of the difference of its two sides."""

    name: str
    equation: str
    residual: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.residual <= self.tolerance


@dataclass(frozen=True)
class Report:
    """The laws measured on one subject; truthy when all hold, and prints as a table."""

    subject: str
    laws: tuple[Law, ...]
    notes: tuple[str, ...] = ()
    linearizability: Linearizability | None = None

    def __bool__(self) -> bool:
        return all(law.holds for law in self.laws)

    def __str__(self) -> str:
        width = max(len(law.equation) for law in self.laws)
        rows = [
            f"  {law.name:<16}{law.equation:<{width}}  {law.residual:9.1e}  {'holds' if law.holds else 'FAILS'}"
            for law in self.laws
        ]
        lines = [self.subject, *rows, *(f"  {note}" for note in self.notes)]
        if self.linearizability is not None:
            lines.append(str(self.linearizability))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        laws = [
            asdict(law) | {"holds": law.holds, "residual": law.residual if math.isfinite(law.residual) else None}
            for law in self.laws
        ]
        measured = None if self.linearizability is None else self.linearizability.to_dict()
        return {
            "subject": self.subject,
            "holds": bool(self),
            "laws": laws,
            "notes": list(self.notes),
            "linearizability": measured,
        }


class Measure:
    """Random and extreme positions, and the residual of each law at them."""

    def __init__(self, tolerance: float, seed: int):
        self.tolerance = tolerance
        self.random = random.Random(seed)

    def position(self, reach: int, axes: int = 1) -> Position:
        draw = self.random.random()
        if draw < 0.4:
            return tuple(self.random.choice(SMALL_POSITIONS) for _ in range(axes))
        if draw < 0.5:
            return tuple(self.random.choice((-reach, reach)) for _ in range(axes))
        return tuple(self.random.randint(-reach, reach) for _ in range(axes))

    def law(self, name: str, equation: str, differences: list[Tensor]) -> Law:
        largest = max(float(difference.abs().max()) for difference in differences)
        return Law(name, equation, largest if largest == largest else float("inf"), self.tolerance)

    def definition(self, query: Factor, key: Factor, reach: int, axes: int = 1) -> list[Law]:
        """Definition 3.1 on the factors: M_sᴴ M_t is the same wherever the pair stands, and I on the spot."""
        moved, on_spot = [], []
        for _ in range(24):
            s, t, c = (self.position(reach, axes) for _ in range(3))
            here = query(s).mH @ key(t)
            there = query(plus(s, c)).mH @ key(plus(t, c))
            moved.append(there - here)
            W_0 = query(c).mH @ key(c)
            on_spot.append(W_0 - torch.eye(W_0.shape[-1]))
        return [
            self.law("Definition 3.1", "M_{s+c}ᴴ M_{t+c} = M_sᴴ M_t", moved),
            self.law("", "W_0 = M_sᴴ M_s = I", on_spot),
        ]

    def representation(self, W: Factor, reach: int, axes: int = 1) -> list[Law]:
        """Proposition 3.2 on square matrices: unitary, multiplicative, and powers of the one-step matrices."""
        unitary, multiplicative, powers = [], [], []
        for _ in range(24):
            s, t = (self.position(reach, axes) for _ in range(2))
            W_s, W_t = W(s), W(t)
            unitary.append(W_s.mH @ W_s - torch.eye(W_s.shape[-1]))
            multiplicative.append(W(minus(t, s)) - W_s.mH @ W_t)
            steps = tuple(abs(a) for a in self.position(POWERS, axes))
            powers.append(W(steps) - power_of_steps(W, steps))
        return [
            self.law("Proposition 3.2", "W_sᴴ W_s = I", unitary),
            self.law("", "W_{t-s} = W_sᴴ W_t", multiplicative),
            self.law("", "W_s = W_1^s", powers),
        ]


def power_of_steps(W: Factor, s: Position) -> Tensor:
    """Π_a W_{e_a}^{s_a}: the powers of the one-step matrices of each axis, for s of 0 or more."""
    steps = [W(tuple(int(a == axis) for a in range(len(s)))) for axis in range(len(s))]
    return reduce(torch.matmul, [torch.linalg.matrix_power(W_1, a) for W_1, a in zip(steps, s, strict=True)])


def plus(s: Position, t: Position) -> Position:
    return tuple(a + b for a, b in zip(s, t, strict=True))


def minus(s: Position, t: Position) -> Position:
    return tuple(a - b for a, b in zip(s, t, strict=True))
