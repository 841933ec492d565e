"""``lrpe explore``: write an interactive page that compares two encodings."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True)
class Explore:
    """Write a page for a browser that compares encodings: kernel, scores, features, spectrum and Δ.

    Attributes:
        out: file of the page.
        runs: runs, or folders of models, whose learned angles, bases and decays are added to the page.
    """

    needs: ClassVar[tuple[str, ...]] = ("report",)
    out: Path = field(default=Path("explorer.html"), metadata={"flags": ("-o", "--out")})
    runs: list[Path] = field(default_factory=list, metadata={"flags": ("--run",), "many": "DIR"})

    def run(self) -> int:
        from lrpe.lab.report.explorer.page import write_explorer

        page = write_explorer(self.out, [learned(folder) for folder in self.runs])
        print(f"The page: {page.resolve()}")
        return 0


def learned(folder: Path) -> dict:
    from lrpe.lab.report.explorer.learned import read_run

    return read_run(folder)
