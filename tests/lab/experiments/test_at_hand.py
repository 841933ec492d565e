"""Which data a table is of, and where the paper's figures stand."""

import pytest

from lrpe.lab.experiments.at_hand import settle
from lrpe.lab.experiments.scale import find_scale
from lrpe.lab.experiments.tables import find_table


def prepare(scale, **paths):
    return lambda experiment: find_scale(scale)(experiment).with_data(paths)


@pytest.mark.parametrize("columns", [[], ["wikitext103", "books"], ["books", "wikitext2", "stdlib"]])
def test_texts_that_are_missing_are_one_column_under_its_own_name(columns):
    table = settle("lm", columns, prepare("small"))
    assert [figure.title for figure in table.figures] == ["Python's library validation", "Python's library test"]
    assert {prepare("small")(figure.cell("type2", "fair")).name for figure in table.figures} == {
        "stdlib/small-fair/type2-seed0"
    }
    assert not any(figure.paper for figure in table.figures)


def test_the_papers_figures_of_other_data_stand_apart():
    table = settle("lm", [], prepare("small"))
    assert [figure.title for figure in table.references] == [
        "WikiText-103 validation", "WikiText-103 test", "Books validation", "Books test",
    ]  # fmt: skip
    assert table.references[0].paper["type2"] == 31.95
    arena = settle("lra", [], prepare("small"))
    assert not any(figure.paper for figure in arena.figures)
    assert arena.average_paper is None
    assert [figure.title for figure in arena.references][-1] == "AVG"
    assert arena.references[-1].paper["type2"] == 65.03


def test_the_papers_figures_stand_beside_ours_of_the_same_data():
    paths = {"wikitext103": "here-it-is", "books": "and-here"}
    table = settle("lm", [], prepare("paper", **paths))
    assert [figure.title for figure in table.figures] == [figure.title for figure in find_table("lm", []).figures]
    assert table.references == ()
    assert table.figures[1].paper["type2"] == 31.71


def test_perplexity_per_byte_does_not_stand_beside_perplexity_per_word():
    table = settle("lm", ["wikitext103"], prepare("small", wikitext103="here-it-is"))
    assert [figure.title for figure in table.figures] == ["WikiText-103 validation", "WikiText-103 test"]
    assert not any(figure.paper for figure in table.figures)
    assert len(table.references) == 2


def test_of_a_table_that_has_some_of_its_data_the_papers_figures_are_beside_those():
    table = settle("lra", ["lra-text", "lra-listops"], prepare("small", **{"lra-text": "here-it-is"}))
    assert [bool(figure.paper) for figure in table.figures] == [True, False]
    assert [figure.title for figure in table.references] == ["ListOps"]


@pytest.mark.parametrize("name", ["basis", "normalizer", "length"])
def test_a_table_of_one_text_is_of_the_library_and_says_so(name):
    table = settle(name, [], prepare("small"))
    assert table.title.endswith("of Python's library")
    assert {figure.cell(table.rows[0], "fair").column for figure in table.figures} == {"stdlib"}
    assert bool(table.references) == (name == "basis")
