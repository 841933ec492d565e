"""``lrpe demo``: the paper's seven methods, small, in a few minutes."""

import os
from dataclasses import dataclass
from pathlib import Path

from lrpe.errors import require


@dataclass(frozen=True)
class RunDemo:
    """Train the paper's seven methods on the text that every machine has, print the table and write a page.

    It takes a few minutes on two cores; what is trained already is not trained again.

    Attributes:
        out: the folder for the runs and the page.
        updates: of each method.
        processes: methods that train at once; as many as there are processors, at most 4, if not given.
        seed: of weights and data.
        windows: of 128 bytes of the held-out text that every method is scored on.
    """

    out: Path = Path("runs/demo")
    updates: int = 300
    processes: int | None = None
    seed: int = 0
    windows: int = 1024

    def run(self) -> int:
        from lrpe.experiments.demo import PAPER, Demo, describe_demo, run_demo
        from lrpe.experiments.methods import METHODS
        from lrpe.report.curves import curves_svg
        from lrpe.report.page import write_page
        from lrpe.report.table import Column, as_html, as_text

        require(self.updates >= 6, f"The curve has six points, so there are 6 updates or more; got {self.updates}.")
        require(self.windows >= 32, f"A score is of 32 windows or more; got {self.windows}.")
        demo = Demo(updates=self.updates, seed=self.seed, windows=self.windows)
        folder = self.out / f"{self.updates}-updates-seed-{self.seed}"
        result = run_demo(demo, folder, self.processes or min(4, os.cpu_count() or 1))
        titles = {row: METHODS[row].title for row in demo.rows}
        rows = titles | {name: f"{name}, counted" for name in result.baselines}
        figures = result.bits | result.baselines
        columns = [
            Column("bits a byte ↓", figures, 3),
            Column("perplexity a byte ↓", {row: 2**bits for row, bits in figures.items()}),
            Column("paper: WikiText-103 ↓", PAPER),
        ]
        print(as_text(rows, columns, demo.rows))
        print("\n" + "\n".join(describe_demo(result)))
        svg = curves_svg({titles[row]: points for row, points in result.curves.items()}, "bits a byte")
        page = write_page(
            folder / "index.html",
            "Seven encodings for linear attention, small",
            describe_demo(result),
            as_html(rows, columns, demo.rows),
            svg,
            "Bits a byte of the held-out text while training.",
            f"lrpe demo --updates {self.updates} --seed {self.seed}",
        )
        print(f"\nThe page: {page.resolve()}")
        return 0
