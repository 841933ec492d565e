import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrpe import LrpeError
from lrpe.lab.data.arena import retrieval
from lrpe.lab.data.dataset import Draw

ROW = b"1.0\tP04-1\tA00-2\tb'one \"text\\n'\tb\"an'other\"\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path / "cache"))


def write_official(folder, **changes):
    for name in ("train", "eval", "test"):
        (folder / f"new_aan_pairs.{name}.tsv").write_bytes(changes.get(name, ROW + ROW.replace(b"1.0", b"0")))
    return folder


def test_a_row_is_two_texts_as_they_stand(tmp_path):
    loaded = retrieval.load_official(write_official(tmp_path))
    sample = loaded.splits["validation"].sample(Draw(0))
    assert bytes(sample["ids"]) == b"b'one \"text\\n'"
    assert bytes(sample["pair_ids"]) == b'b"an\'other"'
    assert sample["label"] == 1
    assert loaded.splits["test"].sample(Draw(1))["label"] == 0
    assert loaded.facts["balance"] == {"train": [1, 1], "validation": [1, 1], "test": [1, 1]}
    assert loaded.show(sample).startswith("cites: b'one")


def test_a_text_is_cut_and_the_cut_is_a_dataset_of_its_own(tmp_path):
    whole, cut = (retrieval.load_official(write_official(tmp_path), length=length) for length in (4000, 5))
    assert bytes(cut.splits["train"].sample(Draw(1))["pair_ids"]) == b"b\"an'"
    assert len(whole.splits["train"].sample(Draw(1))["pair_ids"]) == 11


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (ROW + b"1.0\ta\tb\tc\n", "line 2: a row must be label, id1, id2, text1, text2; got 4 columns"),
        (ROW + b"\n", "line 2: a row must be label"),
        (b"2.0\ta\tb\tc\td\n", "line 1: the label must be 0, 1, 0.0 or 1.0; got b'2.0'"),
        (b"label\tid1\tid2\ttext1\ttext2\n", "line 1: the label must be 0, 1"),
    ],
)
def test_a_broken_row_is_named_and_leaves_nothing(tmp_path, content, said):
    with pytest.raises(LrpeError, match=rf"new_aan_pairs.test.tsv', {said}"):
        retrieval.load_official(write_official(tmp_path, test=content))
    assert not list((tmp_path / "cache").glob("lra-retrieval*"))


def test_an_empty_file_is_an_empty_split(tmp_path):
    loaded = retrieval.load_official(write_official(tmp_path, eval=b""))
    assert len(loaded.splits["validation"]) == 0


@given(st.binary(max_size=60))
def test_any_bytes_are_rows_or_a_clear_error(tmp_path_factory, content):
    file = tmp_path_factory.mktemp("fuzz") / "train.tsv"
    file.write_bytes(ROW + content)
    said = "train.tsv', line"
    try:
        rows = list(retrieval.read_tsv(file, 10))
    except LrpeError as error:
        said = str(error)
    else:
        assert all(label in (0, 1) and len(texts) == 2 for label, texts in rows)
    assert "train.tsv', line" in said


def write_citations(folder, papers=60):
    docs = "".join(f'{{"id": "P{i}", "text": "{"" if i == 7 else f"text {i}"}"}}\n' for i in range(papers))
    (folder / "docs.jsonl").write_text(docs)
    pairs = [(i, j) for i in range(papers) for j in range(papers) if i != j and (i * j) % 5 == 1]
    (folder / "citations.tsv").write_text("".join(f"P{i}\tP{j}\n" for i, j in pairs))
    return pairs


def test_pairs_of_a_graph_are_balanced_and_no_paper_is_in_two_splits(tmp_path):
    citing = {frozenset(pair) for pair in write_citations(tmp_path)}
    loaded = retrieval.load_citations(tmp_path)
    assert loaded.facts["empty"] == 1
    seen = []
    for split in loaded.splits.values():
        samples = [split.sample(Draw(i)) for i in range(len(split))]
        numbers = [[int(bytes(sample[name]).split()[1]) for name in ("ids", "pair_ids")] for sample in samples]
        assert sum(sample["label"] for sample in samples) * 2 == len(samples) > 0
        assert all(
            (frozenset(pair) in citing) == sample["label"] for pair, sample in zip(numbers, samples, strict=True)
        )
        seen.append({number for pair in numbers for number in pair})
    assert sum(map(len, seen)) == len(set.union(*seen))
    assert 7 not in set.union(*seen)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("docs.jsonl", '{"id": 1}\n', "line 1: a paper must be a JSON object with id and text"),
        ("docs.jsonl", "P1\n", "line 1: a paper must be a JSON object"),
        ("citations.tsv", "P1\n", "line 1: a row must be two ids; got 1 columns"),
    ],
)
def test_a_broken_graph_is_named(tmp_path, name, content, said):
    write_citations(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(LrpeError, match=rf"{name}', {said}"):
        retrieval.load_citations(tmp_path)
