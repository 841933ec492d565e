import sys
from types import SimpleNamespace

import pytest

from lrpe import LrpeError
from lrpe.lab.data.catalog import find, load
from lrpe.lab.data.text.hub import hub_source, parse_repository


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def hub(monkeypatch):
    """A hub with these repositories, which notes how it is asked."""
    held = {
        "owner/split": {"train": ["a\n", "b\n"], "validation": ["c\n"], "test": ["d\n"], "unsupervised": ["e\n"]},
        "Salesforce/wikitext": {
            "test": ["", " = A = \n", "", " a b \n"],
            "train": ["", " = A = \n", "", " a \n", "", " = B = \n", "", " b \n"],
        },
        "wikimedia/wikipedia": {"train": ["article\n"] * 3},
        "emozilla/pg19": {"train": ["book\n"], "test": ["book\n"]},
        "owner/whole": {"train": [f"{number}\n" for number in range(8)]},
    }
    asked = []

    def load_dataset(name, configuration, **options):
        asked.append((name, configuration, options))
        if name not in held:
            raise FileNotFoundError(f"{name} is not on the hub")
        return {split: [{"text": text} for text in texts] for split, texts in held[name].items()}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return asked


def test_splits_of_the_hub_are_kept(hub):
    documents = [tuple(document) for document in hub_source("owner/split").documents()]
    assert documents == [("train", "a\n"), ("train", "b\n"), ("validation", "c\n"), ("test", "d\n")]


def test_rows_are_streamed_and_code_is_never_asked_for(hub):
    list(hub_source("owner/whole:en@abc").documents())
    assert hub == [("owner/whole", "en", {"revision": "abc", "streaming": True})]


def test_a_training_split_alone_is_held_out_by_number_and_limited(hub):
    splits = [split for split, _ in hub_source("owner/whole", every=4, limit=7).documents()]
    assert splits == ["train", "train", "validation", "test", "train", "train", "validation"]


def test_the_hub_is_asked_only_if_one_says_so(hub):
    assert find("hub-text").ways == ["--hub"]
    assert find("wikitext2").ways == ["--path", "--hub"]
    with pytest.raises(LrpeError, match="available only from the hub"):
        load("hub-text", repository="owner/whole")
    assert not hub


def test_several_repositories_come_one_after_the_other(hub):
    found = load("hub-text", hub=True, repository=["owner/split", "owner/whole"], every=4, tokenizer="bytes")
    assert {name: split["documents"] for name, split in found.facts["splits"].items()} == {
        "train": 2 + 4,
        "validation": 1 + 2,
        "test": 1 + 2,
    }


def test_the_lines_of_wikitext_on_the_hub_are_its_articles(hub):
    facts = load("wikitext2", hub=True).facts["splits"]
    assert hub[0][:2] == ("Salesforce/wikitext", "wikitext-2-v1")
    assert {name: split["documents"] for name, split in facts.items()} == {"train": 2, "test": 1}
    assert facts["test"]["tokens"] == 3 + 2 + 4  # words and ends of lines


def test_wikibook_of_the_hub_is_wikipedia_and_books(hub):
    facts = load("wikibook", hub=True, tokenizer="bytes").facts["splits"]
    assert {name: split["documents"] for name, split in facts.items()} == {"train": 4, "test": 1}


def test_what_the_hub_cannot_give_is_named(hub):
    with pytest.raises(LrpeError, match=r"owner/none could not be read: FileNotFoundError"):
        list(hub_source("owner/none").documents())
    with pytest.raises(LrpeError, match=r"Row 0 of owner/split has no text in column='body'; its columns are text"):
        list(hub_source("owner/split", column="body").documents())
    with pytest.raises(LrpeError, match="owner/name"):
        parse_repository(":en")


def test_a_network_that_fails_on_the_way_is_not_taken_for_the_cache(monkeypatch):
    def rows():
        yield {"text": "a"}
        raise ConnectionError("reset")

    def load_dataset(*_, **__):
        return {"train": rows()}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(LrpeError, match=r"owner/x could not be read: ConnectionError: reset"):
        load("hub-text", hub=True, repository="owner/x", tokenizer="bytes")


def test_without_the_library_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(LrpeError, match=r"pip install 'lrpe\[hub\]'"):
        list(hub_source("owner/whole").documents())
