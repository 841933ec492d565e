"""The paired test against examples computed by hand, SciPy, and the definition of Holm's procedure."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrpe.lab.report.paired_test import LEVEL, compare_rows, holm

numpy = pytest.importorskip("numpy")
stats = pytest.importorskip("scipy.stats")

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=6)


def numbered(*figures: float) -> dict[int, float]:
    return dict(enumerate(figures))


def test_two_seeds_by_hand():
    """Differences 1 and 3: mean 2, deviation √2, t = 2 / (√2 / √2) = 2: p = 1 − 2 atan(t) / π."""
    test = compare_rows({"base": numbered(10, 20), "type2": numbered(11, 23)}, ["base"])["base"]["type2"]
    assert (test.seeds, test.difference) == (2, 2)
    assert test.p == pytest.approx(1 - 2 * math.atan(2) / math.pi)
    assert test.adjusted == test.p  # one comparison needs no correction
    half = math.tan(0.95 * math.pi / 2)  # times the standard error, which is 1
    assert (test.low, test.high) == pytest.approx((2 - half, 2 + half))
    assert not test.significant


def test_three_seeds_by_hand():
    """Differences −1, −2, −3: mean −2, deviation 1, t = −2√3; with two degrees of freedom p = 1 − |t| / √(t² + 2)."""
    test = compare_rows({"base": numbered(5, 5, 5), "type2": numbered(4, 3, 2)}, ["base"])["base"]["type2"]
    assert test.p == pytest.approx(1 - math.sqrt(12 / 14))
    assert test.p == pytest.approx(0.07418, abs=1e-5)
    assert test.low < test.difference == -2 < test.high


def test_the_spread_between_seeds_is_no_part_of_the_difference():
    """Seeds differ by 100 and rows by 1: a test without pairs sees nothing."""
    base, better = (100.0, 200.0, 300.0), (99.0, 199.01, 298.99)
    test = compare_rows({"base": numbered(*base), "type2": numbered(*better)}, ["base"])["base"]["type2"]
    assert test.significant
    assert stats.ttest_ind(base, better).pvalue > 0.9


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_p_and_interval_are_scipys(seeds):
    drawn = numpy.random.default_rng(seeds).normal(size=(3, seeds))
    scores = {name: numbered(*values) for name, values in zip(("type1", "rope", "type2"), drawn, strict=True)}
    tests = compare_rows(scores, ["base", "rope"])
    assert list(tests) == ["rope"]  # there is no base
    for row, values in (("type1", drawn[0]), ("type2", drawn[2])):
        expected = stats.ttest_rel(values, drawn[1])
        assert tests["rope"][row].p == pytest.approx(expected.pvalue)
        interval = expected.confidence_interval(0.95)
        assert (tests["rope"][row].low, tests["rope"][row].high) == pytest.approx((interval.low, interval.high))


def test_rows_are_paired_by_seed_and_not_by_place():
    scores = {"base": {0: 1.0, 1: 5.0, 2: 9.0}, "type2": {2: 8.0, 1: 4.5}}
    test = compare_rows(scores, ["base"])["base"]["type2"]
    assert (test.seeds, test.difference) == (2, -0.75)


@pytest.mark.parametrize(
    "row",
    [{0: 1.0}, {3: 1.0, 4: 2.0}, numbered(1.0, math.nan, 2.0), numbered(math.inf, 1.0), numbered(2.0, 3.0, 4.0)],
    ids=["one seed", "no seed in common", "diverged", "infinite", "differences alike"],
)
def test_a_row_that_cannot_be_tested_is_left_out(row):
    others = {"type1": numbered(1.5, 2.0, 3.5)}
    tests = compare_rows({"base": numbered(1.0, 2.0, 3.0), "type2": row} | others, ["base"])["base"]
    assert list(tests) == ["type1"]
    assert tests["type1"].adjusted == tests["type1"].p  # and it is not counted by the correction


def test_nothing_is_tested_with_one_seed():
    assert compare_rows({"base": {0: 1.0}, "type2": {0: 2.0}}, ["base"]) == {}


def test_the_rows_are_corrected_for_their_number():
    scores = {"base": numbered(0, 0, 0), "a": numbered(1, 2, 3), "b": numbered(1, 1.1, 1.2), "c": numbered(-1, 0, 2)}
    tests = compare_rows(scores, ["base"])["base"]
    assert tests["b"].adjusted == pytest.approx(3 * tests["b"].p)
    assert tests["a"].adjusted == pytest.approx(2 * tests["a"].p)
    assert tests["c"].adjusted == pytest.approx(tests["c"].p)
    assert {row for row, test in tests.items() if test.significant} == {"b"}


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(P_VALUES, st.floats(0.01, 0.99))
def test_a_corrected_value_is_below_a_level_exactly_where_the_closed_procedure_rejects(values, level):
    """Holm closes Bonferroni's test: a hypothesis is rejected if every set with it has a p-value below level / size."""
    for index, corrected in enumerate(holm(values)):
        sets = (
            subset
            for size in range(1, len(values) + 1)
            for subset in itertools.combinations(range(len(values)), size)
            if index in subset
        )
        rejected = all(any(len(subset) * values[k] < level for k in subset) for subset in sets)
        assert (corrected < level) == rejected


def test_a_true_hypothesis_is_marked_in_at_most_one_table_in_twenty():
    """Eight rows that equal Base but for noise: with three seeds, some row is marked in about 5 % of 200 tables."""
    random = numpy.random.default_rng(0)
    marked = 0
    for _ in range(200):
        drawn = random.normal(size=(9, 3))
        scores = {name: numbered(*values) for name, values in zip(("base", *"abcdefgh"), drawn, strict=True)}
        marked += any(test.significant for test in compare_rows(scores, ["base"])["base"].values())
    assert marked / 200 < 2 * LEVEL
