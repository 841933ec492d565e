"""``lrpe table speed``: the table of the paper that is measured, not trained."""

from collections.abc import Sequence
from pathlib import Path

from lrpe.errors import require
from lrpe.lab.benchmarks.process import measure_apart
from lrpe.lab.benchmarks.train import describe_plan, find_rows
from lrpe.lab.report.speed import report_speed

QUICK = {"small": False, "smoke": True}


def make_speed(rows: Sequence[str], scale: str, out: Path, dry_run: bool, command: str) -> int:
    """Measure the training steps of the rows in a process of its own, print the table and write it."""
    require(scale in QUICK, f"Speed is measured at the scale small, or smoke for a tiny model; got --scale {scale}.")
    options = {"quick": QUICK[scale], "rows": find_rows(rows)}
    if dry_run:
        print(f"{describe_plan(**options)}\nThe table would be written to {out}.")
        return 0
    text, page = report_speed(*measure_apart("train", **options), out, command)
    print(f"{text}\n\nThe page: {page.resolve()}")
    return 0
