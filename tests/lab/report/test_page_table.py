import re

import pytest

from lrpe.lab.experiments.methods import REFERENCES
from lrpe.lab.report.page_table import as_html, draw_interval, scale_of, show_tests
from lrpe.lab.report.paired_test import compare_rows
from lrpe.lab.report.table import FigureColumn

ROWS = {"base": "Base", "type2": "Type 2", "bigrams": "bigrams"}
SEEDS = {"base": {0: 9.0, 1: 10.0, 2: 11.0}, "type2": {0: 5.0, 1: 6.5, 2: 7.0}}
FIGURES = {"base": 10.0, "type2": 18.5 / 3, "bigrams": 12.0}
COLUMN = FigureColumn("val", FIGURES, scores=SEEDS, tests=compare_rows(SEEDS, REFERENCES))


def numbers(pattern, text):
    return [float(each) for each in re.findall(pattern, text)]


def test_mean_and_range_are_at_their_places_on_the_scale():
    drawn = draw_interval(6.0, {0: 5.0, 1: 7.0}, (5.0, 9.0), [9.0])
    ((left, right),) = re.findall(r'class="range" x1="([\d.]+)" x2="([\d.]+)"', drawn)
    (dot,) = numbers(r'<circle cx="([\d.]+)"', drawn)
    (line,) = numbers(r'class="reference" x1="([\d.]+)"', drawn)
    first, last = 7.0, 113.0  # of 120, with room for a dot
    assert (float(left), float(right), line) == (first, (first + last) / 2, last)
    assert dot == pytest.approx((first + (first + last) / 2) / 2, abs=0.1)
    assert "<title>6.00, the mean of 5.00 (seed 0), 7.00 (seed 1)</title>" in drawn


def test_one_seed_has_no_range_and_a_figure_beyond_the_scale_is_an_arrow():
    assert "range" not in draw_interval(6.0, {0: 6.0}, (5.0, 9.0))
    assert "circle" not in draw_interval(12.0, {}, (5.0, 9.0))
    assert 'class="beyond"' in draw_interval(12.0, {}, (5.0, 9.0))


@pytest.mark.parametrize("figures", [[], [3.0], [3.0, 3.0], [float("nan"), 3.0], [float("inf"), 3.0]])
def test_figures_that_do_not_differ_have_no_scale(figures):
    assert scale_of(figures) is None


def test_a_table_has_a_plot_per_figure_on_the_scale_of_the_ranked_rows():
    html = as_html(ROWS, [COLUMN], ["base", "type2"])
    assert (
        '<span class="ends"><span>5.00</span><span>11.00</span></span>' in html
    )  # 12, which is not ranked, is an arrow
    assert html.count('class="interval"') == 3
    assert html.count('class="beyond"') == 1
    assert "the bar the range of the seeds, the vertical lines at Base." in html


def test_a_column_that_is_not_ranked_or_does_not_differ_has_no_plots():
    assert "svg" not in as_html(ROWS, [FigureColumn("seconds", FIGURES, 2, None)], [])
    assert "svg" not in as_html(ROWS, [FigureColumn("val", {"base": 1.0, "type2": 1.0})], ["base", "type2"])


def test_the_tests_are_shown_with_difference_interval_and_both_p_values():
    test = COLUMN.tests["base"]["type2"]
    html = show_tests(ROWS, [COLUMN])
    assert "val: difference from Base" in html
    assert test.high < 0
    cells = [f"−{-test.difference:.2f}", f"−{-test.low:.2f} to −{-test.high:.2f}", "3", f"{test.p:.2g}"]
    assert '<th scope="row">Type 2</th>' + "".join(f"<td>{cell}</td>" for cell in cells) in html
    assert show_tests(ROWS, [FigureColumn("val", FIGURES)]) == ""
