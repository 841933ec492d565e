import json
import multiprocessing
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrpe import LrpeError
from lrpe.lab.caches import cache_folder
from lrpe.lab.data.catalog import load
from lrpe.lab.data.text import text_dataset as module
from lrpe.lab.data.text.sources import Document, Source
from lrpe.lab.data.text.text_dataset import cut, text_dataset
from lrpe.lab.data.text.tokenizer import byte_level, learn_bpe
from tests.lab.data.texts import TEXTS, dataset, source


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path / "cache"))


def whole(found, split):
    stream = found.windows(split).stream
    return found.tokenizer.decode(stream.read(0, len(stream)))


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:270"])
def test_the_documents_stand_one_after_the_other_each_with_its_end(tokenizer):
    found = dataset(tokenizer=tokenizer)
    for split, texts in TEXTS.items():
        assert whole(found, split) == "".join(text + "</s>" for text in texts if text)


def test_words_end_lines_and_documents_with_one_token():
    found = dataset(tokenizer="words")
    assert whole(found, "validation") == " one five nine\n thirteen twelve eleven ten nine\n eight\n seven\n"


@pytest.mark.parametrize("tokenizer", ["bytes", "words", "bpe:270"])
def test_words_and_bytes_are_counted_and_empty_documents_too(tokenizer):
    facts = dataset(tokenizer=tokenizer).facts["splits"]
    for split, texts in TEXTS.items():
        full = [text for text in texts if text]
        lines = sum(text.count("\n") + (not text.endswith("\n")) for text in full)
        assert facts[split]["words"] == sum(len(text.split()) for text in full) + lines
        assert facts[split]["bytes"] == sum(len(text.encode()) for text in full)
        assert (facts[split]["documents"], facts[split]["empty"]) == (len(full), len(texts) - len(full))
    assert tokenizer != "words" or all(facts[split]["words"] == facts[split]["tokens"] for split in TEXTS)


def test_every_split_of_a_stream_sums_up_to_its_words_and_bytes():
    stream = dataset().windows("train").stream
    n = len(stream)
    for cuts in ([0, n], [0, 7, n], list(range(n + 1))):
        parts = [stream.words_and_bytes(a, b) for a, b in pairwise(cuts)]
        assert np.allclose(np.sum(parts, axis=0), stream.marks[1:, -1])
    first = int(stream.marks[0, 1])
    assert stream.words_and_bytes(0, first) == (5 + 2, len(TEXTS["train"][0]))


def refuse(*_, **__):
    raise LrpeError("this would have to be built")


def test_what_was_tokenised_is_found_again_and_another_tokeniser_has_its_own(monkeypatch):
    dataset()
    monkeypatch.setattr(module, "write_streams", refuse)
    again = dataset()
    assert again.facts["splits"]["test"]["tokens"] == len(TEXTS["test"][0]) + 1
    with pytest.raises(LrpeError, match="would have to be built"):
        dataset(tokenizer="bpe:270")


def ask(results):
    found = dataset(tokenizer="bpe:265")
    results.put((found.facts["tokenizer"], whole(found, "train")))


def test_processes_that_prepare_at_once_get_one_result():
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=ask, args=(results,)) for _ in range(3)]
    for process in processes:
        process.start()
    assert len({results.get(timeout=60) for _ in processes}) == 1
    for process in processes:
        process.join()
    assert sorted(file.name.partition("-")[0] for file in cache_folder().glob("[a-z]*")) == ["small", "tokenizer"]


@pytest.mark.parametrize("tokenizer", ["bytes", "words", "bpe:300"])
def test_a_source_that_breaks_leaves_nothing_in_the_cache(tokenizer):
    def documents():
        yield Document("train", "fine\n")
        raise LrpeError("line 2 is broken")

    with pytest.raises(LrpeError, match="line 2 is broken"):
        text_dataset(Source("broken", {}, documents), tokenizer)
    assert [file.name for file in cache_folder().iterdir() if not file.name.startswith(".")] == []


def test_facts_can_be_written_as_json():
    found = dataset(tokenizer="words")
    assert json.loads(json.dumps(found.facts)) == found.facts
    assert found.facts["vocabulary"] == len(found.tokenizer)


def test_a_sample_is_shown_as_text():
    found = dataset(length=10)
    assert found.show({"input_ids": [104, 105, 10]}) == r"'hi\n'"


BPE = learn_bpe([" ".join(texts) for texts in TEXTS.values()], 290)


@given(st.text(st.sampled_from("ab \n\t.é0") | st.characters(exclude_categories=["Cs"])), st.integers(1, 9))
def test_the_pieces_of_a_text_have_its_tokens(text, size):
    parts = list(cut(text, size))
    assert "".join(parts) == text
    for tokenizer in (BPE, byte_level()):
        assert np.concatenate(tokenizer.encode(parts)).tolist() == tokenizer.encode([text])[0].tolist()


def test_large_documents_keep_their_tokens_and_their_counts(monkeypatch):
    monkeypatch.setattr("lrpe.lab.data.text.text_dataset.cut.__defaults__", (5,))
    pieces = dataset({"train": ["one two\nthree four\n\nfive six\n", " \n" * 9]}, "words")
    assert whole(pieces, "train") == " one two\n three four\n\n five six\n"
    assert pieces.facts["splits"]["train"] == {"documents": 1, "empty": 1, "tokens": 10, "words": 10, "bytes": 29}


def test_no_text_for_training_is_refused():
    with pytest.raises(LrpeError, match="no training document with text"):
        dataset({"train": ["", " \n"]})


def test_a_tokeniser_that_has_no_such_name_is_refused():
    with pytest.raises(LrpeError, match="got tokenizer='bpe:many'"):
        dataset(tokenizer="bpe:many")


def test_a_split_that_is_not_there_is_named():
    with pytest.raises(LrpeError, match="'validation'"):
        dataset().windows("valid")


def test_the_standard_library_is_on_every_machine():
    found = load("stdlib", length=64)
    facts = found.facts["splits"]
    assert facts["train"]["bytes"] + facts["train"]["documents"] == facts["train"]["tokens"] > 1_000_000
    assert min(facts[split]["documents"] for split in ("validation", "test")) > 3


def test_books_wikibook_and_any_text_are_read_from_their_layouts(tmp_path):
    for part in ("wikipedia", "books"):
        for number in range(4):
            file = tmp_path / part / f"{number}.txt"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"{part} {number}\n" * 20)
    found = load("wikibook", tmp_path, tokenizer="bpe:300")
    assert sum(split["documents"] for split in found.facts["splits"].values()) == 8
    assert {split["documents"] for split in load("books", tmp_path / "books").facts["splits"].values()} == {1, 2}
    assert (
        load("text", tmp_path / "books" / "0.txt", tokenizer="bytes", length=8).facts["splits"]["train"]["words"] > 40
    )
    with pytest.raises(LrpeError, match="has no wikipedia, books"):
        load("wikibook", tmp_path / "books")


def test_the_identity_of_a_source_is_part_of_what_it_is_kept_under():
    one, other = dataset(), text_dataset(source({"train": ["other\n"]}), "bytes")
    assert one.facts["sources"] != other.facts["sources"]
    assert whole(other, "train") == "other\n</s>"
