import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrpe import LrpeError
from lrpe.lab.data.arena import text as lra_text
from lrpe.lab.data.dataset import Draw


def write_folders(root, count=40):
    for split in ("train", "test"):
        for name in ("pos", "neg"):
            folder = root / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                (folder / f"{i}_7.txt").write_text(f"{split} {name} review {i % (count - 1)} " * 3)
    return root


def write_jsonl(root, train=b'{"text": "good", "label": 1}\n', test=b'{"text": "bad", "label": 0}\n'):
    (root / "train.jsonl").write_bytes(train)
    (root / "test.jsonl").write_bytes(test)
    return root


def texts(split):
    return [bytes(split.sequence(i)) for i in range(len(split))]


@pytest.mark.parametrize("above", ["", "aclImdb"])
def test_the_official_folders_are_read(tmp_path, above):
    write_folders(tmp_path / above)
    loaded = lra_text.load_reviews(tmp_path)
    assert loaded.facts["balance"]["test"] == [40, 40]
    assert len(loaded.splits["train"]) + len(loaded.splits["validation"]) == 80
    assert len(loaded.splits["validation"]) >= 1
    sample = loaded.splits["test"].sample(Draw(40))
    assert bytes(sample["ids"]).startswith(b"test pos review 0")
    assert sample["label"] == 1
    assert loaded.show(sample).startswith("pos: test pos review")


def test_no_text_is_in_two_splits_though_one_stands_there_twice(tmp_path):
    loaded = lra_text.load_reviews(write_folders(tmp_path))
    train, validation = (texts(loaded.splits[name]) for name in ("train", "validation"))
    assert len(train) + len(validation) > len({*train, *validation})
    assert not set(train) & set(validation)
    assert texts(lra_text.load_reviews(tmp_path).splits["validation"]) == validation


def test_json_lines_hold_the_same(tmp_path):
    rows = [{"id": i, "rating": 3, "label": i % 2, "text": f"review {i}: é"} for i in range(30)]
    content = "\n".join(json.dumps(row) for row in rows).encode()
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(content))
    (tmp_path / "test.jsonl.gz").write_bytes(gzip.compress(content))
    loaded = lra_text.load_reviews(tmp_path, length=12)
    assert loaded.facts["balance"]["test"] == [15, 15]
    assert bytes(loaded.splits["test"].sample(Draw(1))["ids"]) == "review 1: é".encode()
    assert bytes(loaded.splits["test"].sample(Draw(11))["ids"]) == "review 11: é".encode()[:12]


def test_bytes_that_are_no_utf8_are_bytes_all_the_same(tmp_path):
    write_folders(tmp_path)
    (tmp_path / "test" / "neg" / "0_7.txt").write_bytes(b"\xff\xfe\x00")
    assert lra_text.load_reviews(tmp_path).splits["test"].sample(Draw(0))["ids"].tolist() == [255, 254, 0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"not json", "line 2: a line must be one JSON object"),
        (b'{"text": "a"}', "line 2: a review must have a text and a label of 0 or 1"),
        (b'{"label": 1}', "line 2: a review must have a text"),
        (b'{"text": 3, "label": 1}', "line 2: a review must have a text"),
        (b'{"text": "a", "label": 2}', "line 2: a review must have a text and a label"),
        (b"[1]", "line 2: a review must have a text"),
        (b'{"text": "\xff", "label": 1}', "line 2: a line must be one JSON object"),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, said):
    write_jsonl(tmp_path, test=b'{"text": "a", "label": 1}\n' + line + b"\n")
    with pytest.raises(LrpeError, match=rf"test.jsonl', {said}"):
        lra_text.load_reviews(tmp_path)


@given(st.binary(max_size=50))
def test_any_line_is_a_review_or_a_clear_error(line):
    try:
        label, text = lra_text.parse_review(line, "here")
    except LrpeError as error:
        said = str(error)
    else:
        said = "here:" if label in (0, 1) and isinstance(text, bytes) else ""
    assert said.startswith("here:")


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(LrpeError, match=r"no train.jsonl"):
        lra_text.load_reviews(tmp_path)
    (tmp_path / "train" / "neg").mkdir(parents=True)
    with pytest.raises(LrpeError, match=r"neg' must contain the neg reviews as \*.txt; it has none"):
        lra_text.load_reviews(tmp_path)
    (tmp_path / "train" / "neg" / "1_1.txt").mkdir()
    with pytest.raises(LrpeError, match=r"1_1.txt' cannot be read"):
        lra_text.load_reviews(tmp_path)
    with pytest.raises(LrpeError, match="got length=0"):
        lra_text.load_reviews(tmp_path, length=0)


def test_a_truncated_gzip_is_named(tmp_path):
    write_jsonl(tmp_path)
    (tmp_path / "train.jsonl").unlink()
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a", "label": 1}\n' * 99)[:-20])
    with pytest.raises(LrpeError, match=r"train.jsonl.gz' cannot be read"):
        lra_text.load_reviews(tmp_path)
