"""Text tables with aligned columns."""

from collections.abc import Sequence


def in_columns(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a text table with a rule under its header; the first ``left`` columns are left-aligned, the others right.

    >>> print(in_columns(["name", "ratio"], [["copy", "1.00"], ["rope", "12.10"]]))
    name  ratio
    ----  -----
    copy   1.00
    rope  12.10
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join("  ".join(_pad(line, widths, left)).rstrip() for line in lines)


def _pad(line: Sequence[str], widths: Sequence[int], left: int) -> list[str]:
    cells = zip(line, widths, strict=True)
    return [cell.ljust(width) if k < left else cell.rjust(width) for k, (cell, width) in enumerate(cells)]
