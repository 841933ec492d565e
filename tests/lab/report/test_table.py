import math

import pytest

from lrpe.lab.experiments.methods import REFERENCES
from lrpe.lab.report.page_table import as_html
from lrpe.lab.report.paired_test import compare_rows
from lrpe.lab.report.table import FigureColumn, as_data, as_latex, as_markdown, as_text

ROWS = {"base": "Base", "type1": "Type 1", "type2": "Type 2", "count": "counted & sure"}
PERPLEXITY = FigureColumn(
    "val",
    {"base": 34.0, "type1": 31.903, "type2": 31.9, "count": 20.0},
    2,
    "lower",
    {"type2": {0: 31.8, 1: 31.9, 2: 32.0}},
    {"type2": 31.95},
)
ACCURACY = FigureColumn("acc", {"base": 70.0, "type2": 80.0}, 1, "higher")
RANKED = ["base", "type1", "type2"]
NASTY = "<img src=x onerror=alert(1)>|*_`$\\{#"


def places(*figures: float, better="lower") -> list[str | None]:
    column = FigureColumn("", dict(zip("abcdef", figures, strict=False)), 2, better)
    return [column.rank(row, list(column.figures)) for row in column.figures]


def test_the_best_and_the_second_best_of_the_ranked_rows_have_a_place():
    assert places(3, 1, 2, 4) == [None, "best", "second", None]
    assert places(3, 1, 2, 4, better="higher") == ["second", None, None, "best"]
    assert [ACCURACY.rank(row, RANKED) for row in ROWS] == ["second", None, "best", None]


def test_rows_that_print_alike_are_best_together_and_then_none_is_second():
    assert places(31.903, 31.899, 34, 35) == ["best", "best", None, None]


def test_a_second_place_that_rows_share_is_not_marked():
    assert places(1, 2, 2, 3) == ["best", None, None, None]


def test_a_column_of_equal_figures_has_no_best():
    assert places(50, 50, 50) == [None] * 3
    assert places(50) == [None]


def test_a_figure_that_is_not_a_number_has_no_place_and_takes_none():
    assert places(math.nan, 1, 2, 4) == [None, "best", "second", None]
    assert FigureColumn("", {"base": math.inf}).show("base") == "diverged"


def test_a_terminal_shows_marks_and_below_the_table_what_they_mean():
    lines = as_text(ROWS, [PERPLEXITY, ACCURACY], RANKED).splitlines()
    assert "31.90 ± 0.10 *  31.95" in lines[4]
    assert lines[0].split() == ["val", "↓", "paper", "acc", "↑"]
    assert lines[-2:] == ["", "best *, second best · (not ranked: counted & sure)"]


def test_markdown_is_a_table_with_bold_and_underlined_cells():
    lines = as_markdown(ROWS, [PERPLEXITY, ACCURACY], RANKED).splitlines()
    assert lines[0] == "|  | val ↓ | paper | acc ↑ |"
    assert lines[1] == "| --- | ---: | ---: | ---: |"
    assert lines[2] == "| Base | 34.00 |  | <u>70.0</u> |"
    assert lines[4] == "| Type 2 | **31.90 ± 0.10** | 31.95 | **80.0** |"
    assert lines[-2:] == ["", "**best**, <u>second best</u> (not ranked: counted &amp; sure)"]


def test_latex_marks_cells_and_says_what_the_marks_mean():
    text = as_latex(ROWS, [PERPLEXITY], RANKED)
    assert r"Type 2 & \textbf{31.90 $\pm$ 0.10} & 31.95 \\" in text
    assert r"val $\downarrow$" in text
    assert text.count(r"\\") == 1 + len(ROWS)
    assert text.endswith(r"\textbf{best} (not ranked: counted \& sure)")


def test_html_marks_cells_and_says_what_the_marks_mean():
    text = as_html(ROWS, [PERPLEXITY, ACCURACY], RANKED)
    assert "<b>31.90 ± 0.10</b>" in text
    assert '<p class="legend"><b>best</b>, <u>second best</u> (not ranked: counted &amp; sure)<br>Plots: ' in text
    assert text.count("<tr>") == 1 + len(ROWS)


@pytest.mark.parametrize("write", [as_text, as_markdown, as_latex, as_html])
def test_a_table_without_marks_has_no_legend(write):
    assert "best" not in write(ROWS, [FigureColumn("seconds", {"base": 1.0, "type1": 2.0}, 3, None)], RANKED)


def test_no_format_reads_a_name_as_markup():
    rows, columns = {"base": NASTY, "type2": "Type 2"}, [FigureColumn(NASTY, ACCURACY.figures, 1, "higher")]
    assert as_text(rows, columns, RANKED).count(NASTY) == 2
    assert as_html(rows, columns, []).count("&lt;img src=x onerror=alert(1)&gt;|*_`$\\{#") == 2
    assert as_markdown(rows, columns, []).count(r"&lt;img src=x onerror=alert(1)&gt;\|\*_\`$\\{#") == 2
    written = r"\textless{}img src=x onerror=alert(1)\textgreater{}|*\_`\$\textbackslash{}\{\#"
    assert as_latex(rows, columns, []).count(written) == 2


def test_the_data_of_a_table_are_its_unrounded_figures():
    (column,) = as_data(ROWS, [PERPLEXITY])["columns"]
    assert column["figures"]["type1"] == 31.903
    assert column["paper"] == {"type2": 31.95}


def with_tests(*seeds_of_type2: float) -> FigureColumn:
    seeds = {"base": {0: 34.0, 1: 34.2, 2: 33.8}, "type2": dict(enumerate(seeds_of_type2))}
    return FigureColumn("val", {"base": 34.0, "type2": 31.9}, scores=seeds, tests=compare_rows(seeds, REFERENCES))


def test_every_format_marks_a_row_that_differs_and_says_from_which_row_by_which_test():
    column, rows = with_tests(31.9, 32.1, 31.71), {"base": "Base", "type2": "Type 2"}
    explained = "differs from Base (paired t-test over 3 seeds, p < 0.05 after Holm's correction)"
    assert "31.90 ± 0.20 * †" in as_text(rows, [column], list(rows))
    assert as_text(rows, [column], list(rows)).endswith(f"best *, second best ·\n† {explained}")
    assert "**31.90 ± 0.20**† |" in as_markdown(rows, [column], list(rows))
    assert f"† {explained}" in as_markdown(rows, [column], list(rows)).replace("&lt;", "<")
    assert r"\textbf{31.90 $\pm$ 0.20}$^\dagger$" in as_latex(rows, [column], list(rows))
    assert '<b>31.90 ± 0.20</b><span class="marks" style="width: 0.6em">†</span>' in as_html(rows, [column], list(rows))
    (data,) = as_data(rows, [column])["columns"]
    assert data["tests"]["base"]["type2"]["p"] < 0.05
    assert data["seeds"]["type2"] == {0: 31.9, 1: 32.1, 2: 31.71}


def test_a_table_in_which_nothing_differs_says_so():
    text = as_text({"base": "Base", "type2": "Type 2"}, [with_tests(34.1, 34.0, 34.0)], ["base", "type2"])
    assert "No row differs significantly from Base (paired t-test over 3 seeds" in text
    assert "†" not in text


def test_a_table_of_one_seed_says_nothing_of_significance():
    text = as_text({"base": "Base", "type2": "Type 2"}, [with_tests(31.9)], ["base", "type2"])
    assert "differ" not in text


@pytest.mark.parametrize("figure", [math.nan, math.inf])
def test_a_row_with_a_seed_that_diverged_has_no_deviation_and_the_table_is_written(figure):
    scores = {"base": {1: 2.0, 2: 4.0}, "type2": {1: figure, 2: 3.0}}
    column = FigureColumn("wikitext", {"base": 3.0, "type2": figure}, scores=scores)
    assert column.deviations == {"base": pytest.approx(math.sqrt(2))}
    text = as_text({"base": "Base", "type2": "Type 2"}, [column], list(scores))
    assert "3.00 ± 1.41" in text
    assert "diverged" in text
    assert as_data({"base": "Base"}, [column])["columns"][0]["deviations"].keys() == {"base"}


def test_a_row_has_the_mark_of_each_reference_that_it_differs_from():
    seeds = {
        "type2": {0: 34.0, 1: 34.2, 2: 33.8},
        "rope": {0: 31.9, 1: 32.1, 2: 31.71},
        "none": {0: 36.0, 1: 35.0, 2: 34.0},
    }
    references, rows = ("none", "type2"), {"rope": "RoPE", "none": "no positions", "type2": "Type 2"}
    figures = {row: sum(by_seed.values()) / 3 for row, by_seed in seeds.items()}
    tests = compare_rows(seeds, references)
    text = as_text(rows, [FigureColumn("val", figures, scores=seeds, tests=tests, references=references)], list(rows))
    assert "31.90 ± 0.20 * ‡" in text
    assert "‡ differs from Type 2 (paired t-test" in text
    assert "†" not in text
