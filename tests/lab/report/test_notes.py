"""The sentences of a table say what its figures say."""

import math

import pytest

from lrpe.lab.experiments.planning import plan
from lrpe.lab.report.notes import notes_of, summarize
from lrpe.lab.report.paired_test import compare_rows
from lrpe.lab.report.table import FigureColumn

TITLES = {"base": "Base", "type2": "Type 2", "recommended": "recommended", "softmax": "softmax + RoPE"}
FIGURES = {"base": 9.5, "type2": 7.25, "recommended": 5.125, "softmax": 5.5, "bigrams": 8.0}


def about(figures, better="lower", rows=tuple(TITLES)):
    return summarize(TITLES, FigureColumn("Validation", figures, 2, better), rows)


def test_each_comparison_is_a_sentence():
    assert about(FIGURES) == [
        "Validation: recommended (5.12) is lowest, followed by softmax + RoPE (5.50); 3 of 4 rows are better than "
        "counting pairs of neighbouring tokens (8.00).",
        "The best of the paper's relative encodings, Type 2 (7.25), is ahead of Base (9.50), which adds absolute "
        "positions.",
        "The linear attention that we recommend, recommended (5.12), is ahead of softmax + RoPE (5.50), whose time is "
        "quadratic in the length.",
    ]


def test_a_result_against_us_is_said_too():
    against = about(FIGURES | {"recommended": 6.0, "type2": 10.0})
    assert "Type 2 (10.00), is behind Base (9.50)" in against[1]
    assert "recommended (6.00), is behind softmax + RoPE (5.50)" in against[2]


def test_figures_that_print_alike_are_level():
    level = about(FIGURES | {"recommended": 5.121, "softmax": 5.12})
    assert level[0].startswith("Validation: softmax + RoPE (5.12) and recommended (5.12) are lowest; 3 of 4")
    assert "recommended (5.12), is level with softmax + RoPE (5.12)" in level[2]


def test_higher_can_be_better():
    assert about(FIGURES, better="higher")[0] == "Validation: Base (9.50) is highest, followed by Type 2 (7.25)."
    assert "counting pairs" not in " ".join(about(FIGURES, better="higher"))  # that is for perplexity only


@pytest.mark.parametrize(
    ("type2", "finding"),
    [
        ((7.2, 7.3, 7.25), "; over 3 seeds the difference is significant (p = 0.00016, corrected)."),
        ((5.0, 9.4, 7.35), "; over 3 seeds the difference is not significant (p = 0.2, corrected)."),
        ((7.25,), ", which adds absolute positions."),
    ],
)
def test_a_difference_from_base_is_called_significant_only_after_a_test(type2, finding):
    seeds = {"base": {0: 9.4, 1: 9.6, 2: 9.5}, "type2": dict(enumerate(type2))}
    tests = compare_rows(seeds, ["base"])
    column = FigureColumn("Validation", {"base": 9.5, "type2": 7.25}, scores=seeds, tests=tests)
    assert summarize(TITLES, column, ["base", "type2"])[1].endswith(finding)


def test_rows_that_diverged_or_are_missing_are_left_out():
    assert about({"base": math.nan, "type2": 7.0}) == []
    assert about(FIGURES | {"recommended": math.inf})[0].startswith("Validation: softmax + RoPE (5.50) is lowest")
    assert about(FIGURES, better=None) == []


@pytest.mark.parametrize(
    ("rows", "seeds", "compared", "weak"),
    [
        (("base", "rope", "type2"), (0, 1, 2), "against Base (†) and RoPE (‡)", False),
        (("rope", "type2"), (0, 1), "against RoPE (‡)", True),
        (("type1", "type2"), (0, 1), "", False),
        (("rope",), (0, 1), "", False),
        (("base", "type2"), (0,), "", False),
    ],
)
def test_the_note_explains_the_test_where_there_is_one_and_calls_two_seeds_weak(rows, seeds, compared, weak):
    notes = [note for note in notes_of(plan("lm", rows=rows, seeds=seeds, scale="smoke")) if "Significance" in note]
    assert len(notes) == bool(compared)
    assert all(compared in note for note in notes)
    assert any("the test is weak" in note for note in notes) == weak


def test_the_note_names_the_rows_with_a_decay_and_only_if_others_have_none():
    told = notes_of(plan("lm", rows=("base", "per", "recommended", "retnet"), scale="smoke"))
    assert "With a decay: PER, recommended, RetNet; without: the other rows. Figures across the two measure more" in (
        " ".join(told)
    )
    assert not any(
        "With a decay" in note for note in notes_of(plan("lm", rows=("recommended", "gated"), scale="smoke"))
    )
