"""Student's paired t-test of every row against a reference row, over seeds.

Runs of the same seed see the same data in the same order, so a row and a reference are compared seed by seed: what the
seed does to both is no part of the difference. Each reference is compared with several rows, hence Holm's correction.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEVEL = 0.05  # of a mark, after the correction


@dataclass(frozen=True)
class PairedTest:
    """The differences of a row and a reference, row − reference, over the seeds that both have.

    Attributes:
        seeds: number of pairs.
        difference: the mean.
        low: lower end of the 95 % confidence interval of the mean, of this comparison alone.
        high: upper end of that interval.
        p: two-sided p-value of "the mean is 0".
        adjusted: the p-value after Holm's correction for all rows compared with this reference in this column.
    """

    seeds: int
    difference: float
    low: float
    high: float
    p: float
    adjusted: float

    @property
    def significant(self) -> bool:
        return self.adjusted < LEVEL


def compare_rows(
    scores: Mapping[str, Mapping[int, float]], references: Iterable[str]
) -> dict[str, dict[str, PairedTest]]:
    """Return the tests by reference and row.

    A reference without scores is left out. So is a row that cannot be tested: it shares fewer than two seeds with the
    reference, has diverged in one of them, or its differences are all alike, so that t, which divides by their
    deviation, is undefined.
    """
    tests = {reference: _compare(scores, reference) for reference in references if reference in scores}
    return {reference: by_row for reference, by_row in tests.items() if by_row}


def _compare(scores: Mapping[str, Mapping[int, float]], reference: str) -> dict[str, PairedTest]:
    differences = {row: _differences(scores[row], scores[reference]) for row in scores if row != reference}
    found = {row: _t_test(values) for row, values in differences.items() if _can_be_tested(values)}
    adjusted = holm([p for *_, p in found.values()])
    return {
        row: PairedTest(len(differences[row]), *numbers, adjusted=corrected)
        for (row, numbers), corrected in zip(found.items(), adjusted, strict=True)
    }


def _differences(row: Mapping[int, float], reference: Mapping[int, float]) -> list[float]:
    return [row[seed] - reference[seed] for seed in sorted(row.keys() & reference.keys())]


def _can_be_tested(differences: Sequence[float]) -> bool:
    finite = all(map(math.isfinite, differences))
    return finite and len(differences) > 1 and not math.isclose(min(differences), max(differences), abs_tol=1e-12)


def _t_test(differences: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the mean, both ends of its 95 % confidence interval, and the two-sided p-value."""
    from scipy.stats import ttest_1samp  # here, so that pages without tests need no scipy

    tested: Any = ttest_1samp(differences, 0.0)
    interval = tested.confidence_interval(0.95)
    mean = sum(differences) / len(differences)
    return mean, float(interval.low), float(interval.high), float(tested.pvalue)


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's step-down method, in the same order.

    The smallest of m values is multiplied by m, the next by m − 1, and so on; no value becomes smaller than the one
    before it, or larger than 1. The chance of a single wrong "p < 0.05" among all m is then at most 0.05, without
    any assumption about how the m tests depend on each other.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, largest = [0.0] * len(values), 0.0
    for place, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, (len(values) - place) * values[index]))
        corrected[index] = largest
    return corrected
