"""The sentences of a table say what its figures say."""

import math

from lrpe.lab.experiments.planning import plan
from lrpe.lab.report.notes import notes_of
from lrpe.lab.report.summary import summarize
from lrpe.lab.report.table import FigureColumn

TITLES = {"base": "Base", "type2": "Type 2", "recommended": "recommended", "softmax": "softmax + RoPE"}
FIGURES = {"base": 9.5, "type2": 7.25, "recommended": 5.125, "softmax": 5.5, "bigrams": 8.0}


def about(figures, better="lower", rows=tuple(TITLES)):
    return summarize(TITLES, FigureColumn("Validation", figures, 2, better), rows)


def test_each_comparison_is_a_sentence():
    assert about(FIGURES) == [
        "Validation: recommended (5.12) is lowest, followed by softmax + RoPE (5.50).",
        "The best of the paper's relative encodings, Type 2 (7.25), is ahead of Base (9.50), which adds absolute "
        "positions.",
        "The linear attention that we recommend, recommended (5.12), is ahead of softmax + RoPE (5.50), whose time is "
        "quadratic in the length.",
        "Counting pairs of neighbouring tokens gives 8.00; 3 of 4 rows are better.",
    ]


def test_a_result_against_us_is_said_too():
    against = about(FIGURES | {"recommended": 6.0, "type2": 10.0})
    assert "Type 2 (10.00), is not ahead of Base (9.50)" in against[1]
    assert "recommended (6.00), is not ahead of softmax + RoPE (5.50)" in against[2]


def test_higher_can_be_better():
    assert about(FIGURES, better="higher")[0] == "Validation: Base (9.50) is highest, followed by Type 2 (7.25)."
    assert len(about(FIGURES, better="higher")) == 3  # pairs are counted for perplexity only


def test_rows_that_diverged_or_are_missing_are_left_out():
    assert about({"base": math.nan, "type2": 7.0}) == []
    assert about(FIGURES | {"recommended": math.inf})[0].startswith("Validation: softmax + RoPE (5.50) is lowest")
    assert about(FIGURES, better=None) == []


def test_the_note_names_the_rows_with_a_decay_and_only_if_others_have_none():
    told = notes_of(plan("lm", rows=("base", "per", "recommended", "retnet"), scale="smoke"))
    assert "With a decay: PER, recommended, RetNet; without: the other rows. Figures across the two measure more" in (
        " ".join(told)
    )
    assert not any(
        "With a decay" in note for note in notes_of(plan("lm", rows=("recommended", "gated"), scale="smoke"))
    )
