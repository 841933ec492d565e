"""A plan is the table's experiments as data: which data they have, and where the paper's figures are printed."""

import pytest

from lrpe import LrpeError
from lrpe.lab.experiments import Plan, plan
from lrpe.lab.experiments.methods import SIX
from lrpe.lab.experiments.tables import find_table


@pytest.mark.parametrize("columns", [[], ["wikitext103", "books"], ["books", "wikitext2", "stdlib"]])
def test_texts_that_are_missing_are_one_column_under_its_own_name(columns):
    table = plan("lm", columns=columns).table
    assert [printed.title for printed in table.printed_columns] == [
        "Python's library validation",
        "Python's library test",
    ]
    cells = plan("lm", columns=columns, rows=["type2"])
    assert [each.name for each in cells.experiments] == ["stdlib/small-fair/type2-seed0"]
    assert not any(printed.paper for printed in table.printed_columns)


def test_the_papers_figures_of_other_data_stand_apart():
    table = plan("lm").table
    assert [printed.title for printed in table.references] == [
        "WikiText-103 validation", "WikiText-103 test", "Books validation", "Books test",
    ]  # fmt: skip
    assert table.references[0].paper["type2"] == 31.95
    arena = plan("lra").table
    assert not any(printed.paper for printed in arena.printed_columns)
    assert arena.average_paper is None
    assert [printed.title for printed in arena.references][-1] == "AVG"
    assert arena.references[-1].paper["type2"] == 65.03


def test_the_papers_figures_stand_beside_ours_of_the_same_data():
    paths = {"wikitext103": "here-it-is", "books": "and-here"}
    table = plan("lm", scale="paper", data=paths).table
    assert [printed.title for printed in table.printed_columns] == [
        printed.title for printed in find_table("lm", []).printed_columns
    ]
    assert table.references == ()
    assert table.printed_columns[1].paper["type2"] == 31.71


def test_perplexity_per_byte_does_not_stand_beside_perplexity_per_word():
    table = plan("lm", columns=["wikitext103"], data={"wikitext103": "here-it-is"}).table
    assert [printed.title for printed in table.printed_columns] == ["WikiText-103 validation", "WikiText-103 test"]
    assert not any(printed.paper for printed in table.printed_columns)
    assert len(table.references) == 2


def test_of_a_table_that_has_some_of_its_data_the_papers_figures_are_beside_those():
    table = plan("lra", columns=["lra-text", "lra-listops"], data={"lra-text": "here-it-is"}).table
    assert [bool(printed.paper) for printed in table.printed_columns] == [True, False]
    assert [printed.title for printed in table.references] == ["ListOps"]


@pytest.mark.parametrize("name", ["basis", "normalizer", "length", "position"])
def test_a_table_of_one_text_is_of_the_library_and_says_so(name):
    table = plan(name).table
    assert table.title.endswith("of Python's library")
    assert {printed.column for printed in table.printed_columns} == {"stdlib"}
    assert bool(table.references) == (name == "basis")


@pytest.mark.parametrize(
    ("column", "split"), [("cifar10", "test"), ("imagenet", "validation"), ("lra-listops", "test")]
)
def test_normalisers_are_compared_on_images_and_long_sequences_by_accuracy(column, split):
    table = plan("normalizer", columns=[column], data={column: "here-it-is"}).table
    assert table.rows[:6] == SIX
    assert {(printed.split, printed.metric, printed.better) for printed in table.printed_columns} == {
        (split, "accuracy", "higher")
    }
    assert len({printed.changes["model"]["normalizer"] for printed in table.printed_columns}) == 6


def test_length_and_position_are_read_from_the_same_runs():
    by_length, by_position = (plan(name, seeds=[0, 1]) for name in ("length", "position"))
    assert [each.name for each in by_length.experiments] == [each.name for each in by_position.experiments]
    assert [printed.title for printed in by_position.table.printed_columns] == ["to ×1", "×1–×2", "×2–×4", "×4–×8"]


def test_a_plan_has_every_row_column_seed_and_setting_once():
    found = plan("lra", rows=["base", "type2"], columns=["lra-text"], settings=["fair", "authors"], seeds=[0, 7])
    assert isinstance(found, Plan)
    assert [each.name for each in found.experiments] == [
        f"lra-text/small-{setting}/{row}-seed{seed}"
        for setting in ("fair", "authors")
        for row in ("base", "type2")
        for seed in (0, 7)
    ]
    (printed,) = found.table.printed_columns
    assert list(found.find_cells(printed, "authors")) == ["base", "type2"]


def test_changes_reach_every_experiment_of_a_plan():
    found = plan("normalizer", rows=["type2"], scale="smoke", changes={"training": {"optimization": {"rate": 0.5}}})
    assert {each.training.optimization.rate for each in found.experiments} == {0.5}
    assert len({each.variant for each in found.experiments}) == len(found.table.printed_columns)


@pytest.mark.parametrize(
    ("table", "row"),
    [("lm", "tpye2"), ("lm", "type2+yarn"), ("lm", "householder"), ("length", "type2+yran"), ("basis", "type2")],
)
def test_a_row_that_a_table_cannot_have_is_refused_before_anything_is_trained(table, row):
    with pytest.raises(LrpeError, match=r"There is no .* named"):
        plan(table, rows=["type2" if table != "basis" else "identity", row])


@pytest.mark.parametrize("choice", [{"settings": []}, {"seeds": []}, {"settings": ["fiar"]}, {"scale": "smal"}])
def test_a_plan_without_a_setting_a_seed_or_a_known_scale_is_refused(choice):
    with pytest.raises(LrpeError):
        plan("lm", **choice)


def test_rows_are_tested_against_base_and_rope_or_the_rows_that_are_named():
    assert plan("lm").against == ("base", "rope")
    assert plan("lm", rows=["type1", "type2"], against=["type2", "type2"]).against == ("type2",)


@pytest.mark.parametrize(
    ("against", "said"),
    [
        (["rope"], "against must name rows of the table, type1, type2; got 'rope'"),
        (
            ["base", "rope", "per", "type1", "type2"],
            "against must name at most 4 rows; got base, rope, per, type1, type2",
        ),
    ],
)
def test_references_are_a_few_rows_of_the_table(against, said):
    with pytest.raises(LrpeError, match=said):
        plan("lm", rows=["type1", "type2"] if len(against) == 1 else SIX, against=against)
