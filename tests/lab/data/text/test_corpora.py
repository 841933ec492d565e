import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrpe import LrpeError
from lrpe.lab.data.catalog import load
from lrpe.lab.data.text.corpora import split_articles, wikitext_source

ARTICLE = " \n = Title {0} = \n \n First words of {0} , <unk> . \n \n = = Heading = = \n \n More words . \n"
COUNTS = {"train": 5, "valid": 2, "test": 1}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path_factory.mktemp("cache")))


def write(folder, prefix="wiki.", suffix=".tokens"):
    folder.mkdir(exist_ok=True)
    for split, count in COUNTS.items():
        text = "".join(ARTICLE.format(f"{split}{number}") for number in range(count)).encode()
        (folder / f"{prefix}{split}{suffix}").write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
    return folder


@pytest.mark.parametrize(
    ("inner", "prefix", "suffix"),
    [("", "wiki.", ".tokens"), ("", "", ".txt.gz"), ("wikitext-103", "wiki.", ".tokens"), ("", "wiki.", ".raw")],
)
def test_every_layout_gives_the_same_words(tmp_path, inner, prefix, suffix):
    write(tmp_path / inner, prefix, suffix)
    dataset = load("wikitext103", tmp_path, length=8)
    lines, words = ARTICLE.count("\n"), len(ARTICLE.split())
    for split, count in zip(("train", "validation", "test"), COUNTS.values(), strict=True):
        facts = dataset.facts["splits"][split]
        assert facts["documents"] == count
        assert facts["tokens"] == facts["words"] == count * (lines + words)
        assert len(dataset.splits[split]) == -(-facts["tokens"] // 8)


def test_words_that_training_never_saw_are_unknown(tmp_path):
    dataset = load("wikitext2", write(tmp_path))
    stream = dataset.windows("test").stream
    assert " = Title <unk> =\n" in dataset.tokenizer.decode(stream.read(0, len(stream)))


LINE = st.sampled_from([" \n", " = A = \n", " = = B = = \n", " some words \n", " = x + 1 \n", "\n", " = \n", " = = \n"])


@given(lines=st.lists(LINE))
def test_every_line_is_in_one_article(lines):
    articles = list(split_articles(iter(lines)))
    assert "".join(articles) == "".join(lines)
    assert all(article.strip() for article in articles[:-1])
    assert all(article.startswith((" = A = \n \n", " = A = \n\n")) for article in articles[1:])


def test_a_file_that_is_missing_is_named(tmp_path):
    write(tmp_path)
    with pytest.raises(LrpeError, match="is a file"):
        wikitext_source(tmp_path / "wiki.train.tokens", "wikitext2")
    (tmp_path / "wiki.valid.tokens").unlink()
    with pytest.raises(LrpeError, match=r"wiki\.train\.tokens, wiki\.valid\.tokens"):
        load("wikitext2", tmp_path)
