"""``lrpe verify`` and ``lrpe explore``: measure the laws of encodings, and compare two of them in a browser."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from lrpe.lab.aligned import in_columns
from lrpe.schema import Range, Seed

if TYPE_CHECKING:
    from lrpe.encodings.encoding import PositionalEncoding
    from lrpe.theory.laws import Report

_Width = Annotated[int, Range(1, 4096)]  # the laws are measured on head_dim × head_dim matrices


@dataclass(frozen=True)
class Verify:
    """Check that encodings obey Definition 3.1 and Proposition 3.2; the exit code is 1 if a law fails.

    Attributes:
        names: encodings such as type2, rope or "fourier*unitary"; every relative encoding that has a name if not given.
        head_dim: width d of a query or key per head.
        heads: number of heads, for encodings that depend on it (per, spe).
        length: longest sequence length, for angles that depend on it (cosformer).
        seed: seed of the tested positions and of the encodings' random choices.
        json: print JSON instead of a table.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    names: list[str] = field(default_factory=list, metadata={"words": "NAME"})
    head_dim: _Width = 64
    heads: _Width = 8
    length: Annotated[int, Range(1, 2**30)] = 512
    seed: Seed = 0
    json: bool = False

    def run(self) -> int:
        import torch

        from lrpe.encodings.family import FAMILY

        torch.set_num_threads(1)  # matrices this small are slower with more threads
        encodings = {name: self.build(name) for name in self.names or [*FAMILY, "per"]}
        reports = {name: self.check(name, subject) for name, subject in encodings.items()}
        if self.json:
            print(json.dumps(_as_json(reports), indent=2, ensure_ascii=False))
        elif len(self.names) == 1:
            print(*reports.values())
        else:
            print(summary(encodings, reports))
        return 0 if all(reports.values()) else 1

    def build(self, name: str) -> "PositionalEncoding":
        from lrpe.encodings.family import configure_for_heads

        published = name == "per" and self.seed == 0  # PermuteFormer has a seed of its own
        drawn = {} if published else {"seed": self.seed}
        return configure_for_heads(name, self.head_dim, self.heads, length=self.length, **drawn).build()

    def check(self, name: str, subject: "PositionalEncoding") -> "Report":
        from lrpe.theory.definition import verify

        if sys.stderr.isatty():
            print(f"\rChecking {name} ... \033[K", end="", file=sys.stderr, flush=True)
        report = verify(subject, seed=self.seed)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        return report


def _as_json(reports: dict[str, "Report"]) -> dict[str, Any]:
    encodings = [{"name": name, **report.to_dict()} for name, report in reports.items()]
    return {"holds": all(reports.values()), "encodings": encodings}


def summary(encodings: dict[str, "PositionalEncoding"], reports: dict[str, "Report"]) -> str:
    """Return a table with a row per encoding and a column per law; the laws are written out below it."""
    from lrpe.theory.definition import composition

    equations = list(dict.fromkeys(law.equation for report in reports.values() for law in report.laws))
    numbers = [f"({k})" for k in range(1, len(equations) + 1)]
    rows = [
        [name, composition(encodings[name]), *residuals(report, equations), "holds" if report else "FAILS"]
        for name, report in reports.items()
    ]
    table = in_columns(["encoding", "P × Λ", *numbers, ""], rows, left=2)
    legend = [f"{number} {equation}" for number, equation in zip(numbers, equations, strict=True)]
    tested = dict.fromkeys(f"Tested: {report.tested}." for report in reports.values())
    return "\n".join([table, "", "Largest residual of each law:", *legend, "", *tested])


def residuals(report: "Report", equations: Sequence[str]) -> list[str]:
    measured = {law.equation: law.residual for law in report.laws}
    return [f"{measured[equation]:.1e}" if equation in measured else "–" for equation in equations]


@dataclass(frozen=True)
class Explore:
    """Write a page for a browser that compares encodings: kernel, scores, features, spectrum and Δ.

    Attributes:
        out: file of the page.
        runs: runs, or folders of models, whose learned angles, bases and decays are added to the page.
        kernels: kernels that attention is wished to have, such as gaussian:16, exponential:8, window:16 or t5:16, which
            are drawn beside what the angles give. Angles that match them can be chosen.
    """

    needs: ClassVar[tuple[str, ...]] = ("report",)
    out: Path = field(default=Path("explorer.html"), metadata={"flags": ("-o", "--out")})
    runs: list[Path] = field(default_factory=list, metadata={"flags": ("--run",), "many": "DIR"})
    kernels: list[str] = field(default_factory=list, metadata={"flags": ("--kernel",), "many": "NAME:WIDTH"})

    def run(self) -> int:
        from lrpe.lab.report.explorer.learned import read_run
        from lrpe.lab.report.explorer.page import write_explorer

        page = write_explorer(self.out, [read_run(folder) for folder in self.runs], self.kernels)
        print(f"The page: {page.resolve()}")
        return 0
