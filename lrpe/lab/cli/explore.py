"""``lrpe explore``: two encodings side by side, on a page that answers at once."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True)
class Explore:
    """Write one page, to open in a browser, on which encodings are looked at: kernel, scores, features, spectrum, Δ.

    Attributes:
        out: the page.
        runs: runs, or folders of models, whose learned angles, bases and decays the page offers too.
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
