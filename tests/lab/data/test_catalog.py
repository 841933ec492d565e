"""The hash of a dataset's content: always there, the same for the same data, another for other data."""

import re

import pytest

from lrpe.lab.data.catalog import CATALOG, load

SMALL = {
    "listops": {
        "train": 20,
        "validation": 5,
        "test": 5,
        "max_depth": 3,
        "min_length": 5,
        "max_length": 30,
        "processes": 1,
    },
    "pathfinder": {"train": 4, "validation": 2, "test": 2, "difficulty": "easy", "processes": 1},
    "stdlib-pairs": {"length": 128, "train": 4, "validation": 2, "test": 2},
}


@pytest.mark.parametrize("name", [entry.name for entry in CATALOG.values() if entry.embedded])
def test_every_dataset_that_is_here_has_a_hash_of_its_content(name):
    first, again = (load(name, **SMALL.get(name, {})).facts["content"] for _ in range(2))
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert first == again


def test_the_hash_of_files_is_that_of_their_content(tmp_path):
    text = tmp_path / "text"
    text.mkdir()
    for split in ("train", "valid", "test"):
        (text / f"{split}.txt").write_text("a b c\n" * 50)
    first = load("text", text, tokenizer="bytes").facts["content"]
    (text / "train.txt").write_text("a b d\n" * 50)
    assert load("text", text, tokenizer="bytes").facts["content"] != first
    (text / "train.txt").write_text("a b c\n" * 50)
    assert load("text", text, tokenizer="bytes").facts["content"] == first


def test_other_expressions_have_another_hash():
    assert (
        load("listops", **SMALL["listops"], seed=1).facts["content"]
        != load("listops", **SMALL["listops"]).facts["content"]
    )
