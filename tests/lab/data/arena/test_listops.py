"""ListOps: the value of an expression, the generator and its distribution, the published files."""

import re
from contextlib import nullcontext
from itertools import islice
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from lrpe import LrpeError
from lrpe.lab.data.arena import listops
from lrpe.lab.data.arena.listops_expressions import BLOCK, SYMBOLS, Grammar, decode, encode, evaluate, generate
from lrpe.lab.data.dataset import Draw

SMALL = Grammar(max_depth=4, max_args=4, min_length=5, max_length=40)

# Of 4,000 samples that the official generator made at its defaults.
OFFICIAL_LABELS = [690, 376, 300, 300, 365, 350, 312, 300, 308, 699]
OFFICIAL_DEPTH = 9  # of every one
OFFICIAL_DECILES = [582, 673.8, 775, 882.6, 991, 1111, 1265, 1443.2, 1675.2]  # of the lengths


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LRPE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def drawn():
    """2,048 expressions at the official defaults."""
    return [(label, ids) for label, (ids,) in generate(2048, 0, Grammar(), processes=1)]


def depth(ids):
    ids = np.frombuffer(ids, dtype=np.uint8)
    return int(np.cumsum(((ids >= 10) & (ids < 14)).astype(int) - (ids == 14)).max())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("[MIN 3 1 2 ]", 1),
        ("[MAX 3 1 2 ]", 3),
        ("[MED 9 1 4 ]", 4),
        ("[MED 1 2 ]", 1),
        ("[MED 0 9 4 7 ]", 5),
        ("[SM 9 9 4 ]", 2),
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
        ("[SM [MAX 5 6 ] [MED 1 8 [SM 8 8 ] ] 7 ]", 9),
        ("( ( ( [MIN ( ( ( [SM 6 ) 6 ) ] ) ) 9 ) ] )", 2),
    ],
)
def test_an_expression_has_the_value_that_a_hand_computes(text, value):
    assert evaluate(encode(text.encode())) == value


def test_the_sixteen_ids_are_those_of_the_documentation():
    assert [SYMBOLS[i] for i in (0, 9, 10, 11, 12, 13, 14)] == ["0", "9", "[MIN", "[MAX", "[MED", "[SM", "]"]
    assert len(SYMBOLS) == listops.PADDING == 15
    assert decode(encode(b"[SM 1 2 ]")) == "[SM 1 2 ]"


@pytest.mark.parametrize(
    "text", ["", "1 2", "[MIN 1 2", "1 ]", "[MIN ]", "[MIN 1 ] ]", "[SUM 1 2 ]", '"[MIN 1 ]"', "10"]
)
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(LrpeError):
        evaluate(encode(text.encode()))


@given(st.lists(st.integers(0, 14), max_size=30))
def test_any_row_of_symbols_has_a_value_or_a_clear_error(ids):
    with pytest.raises(LrpeError, match=r"expression|bracket") if not is_expression(ids) else nullcontext():
        assert 0 <= evaluate(ids) <= 9


def is_expression(ids):
    """By rewriting: an operator with digits up to its bracket is a digit, until one is left."""
    text = "".join("0123456789abcd]"[i] for i in ids)
    while (shorter := re.sub(r"[a-d]\d+\]", "0", text)) != text:
        text = shorter
    return re.fullmatch(r"\d", text) is not None


def naive_length(random, level=1):
    """The length of a tree as the official generator draws it: the specification."""
    if level < 10 and random.random() <= 0.25:
        return 2 + sum(naive_length(random, level + 1) for _ in range(random.randint(2, 10)))
    return 1


def test_lengths_are_distributed_as_the_naive_recursion_gives_them(drawn):
    random = Random(0)
    lengths = (naive_length(random) for _ in iter(int, 1))
    naive = list(islice((length for length in lengths if 500 < length < 2000), 1000))
    assert ks_2samp(naive, [len(ids) for _, ids in drawn]).pvalue > 0.01


def test_labels_and_depths_are_distributed_as_in_the_official_samples(drawn):
    official = np.repeat(np.arange(10), OFFICIAL_LABELS)
    assert ks_2samp(official, [label for label, _ in drawn]).pvalue > 0.01
    assert ks_2samp(official, np.arange(2048) % 10).pvalue < 1e-3  # even shares are told apart
    assert {depth(ids) for _, ids in drawn} == {OFFICIAL_DEPTH}


def test_lengths_are_near_those_of_the_official_samples(drawn):
    lengths = np.array([len(ids) for _, ids in drawn])
    shares = [(lengths <= decile).mean() for decile in OFFICIAL_DECILES]
    assert np.abs(np.array(shares) - np.arange(1, 10) / 10).max() < 0.08  # see docs/data.md: they are a little longer
    assert lengths.min() > 500
    assert lengths.max() < 2000


def test_another_distribution_is_told_apart(drawn):
    other = [len(ids) for _, (ids,) in generate(1024, 0, Grammar(max_args=9), processes=1)]
    assert ks_2samp(other, [len(ids) for _, ids in drawn]).pvalue < 1e-3


def test_every_label_is_the_value_of_its_expression_by_another_way(drawn):
    words = {"[MIN": "min(", "[MAX": "max(", "[MED": "med(", "[SM": "sm(", "]": "),"}
    names = {"med": lambda *values: int(np.median(values)), "sm": lambda *values: sum(values) % 10}
    for label, ids in drawn[:50]:
        written = "".join(words.get(symbol, f"{symbol},") for symbol in decode(ids).split())
        assert eval(written.rstrip(","), names) == label


def test_any_number_of_processes_makes_the_same_expressions():
    count = 2 * BLOCK + 10
    alone = list(generate(count, 3, SMALL, processes=1))
    assert list(generate(count, 3, SMALL, processes=2)) == alone
    assert list(generate(count, 4, SMALL, processes=1)) != alone


def test_no_expression_comes_twice():
    made = listops.load_generated(400, 50, 50, max_depth=3, max_args=4, min_length=5, max_length=30)
    seen = [bytes(split.sequence(i)) for split in made.splits.values() for i in range(len(split))]
    assert len(set(seen)) == len(seen) == 500
    assert all(5 < len(ids) < 30 for ids in seen)
    assert all(
        evaluate(split.sample(Draw(0))["ids"]) == split.sample(Draw(0))["label"] for split in made.splits.values()
    )


def test_what_was_made_once_is_found_again(monkeypatch):
    options = {"max_depth": 4, "min_length": 5, "max_length": 40}
    first = listops.load_generated(20, 5, 5, **options)
    monkeypatch.setattr(listops, "generate", lambda *_: pytest.fail("it was made before"))
    again = listops.load_generated(20, 5, 5, **options)
    assert again.facts == first.facts
    assert again.show(again.splits["test"].sample(Draw(0))) == first.show(first.splits["test"].sample(Draw(0)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_depth": 2, "max_args": 2, "min_length": 50, "max_length": 60}, "Widen it"),
        ({"max_depth": 2, "max_args": 2, "min_length": 3, "max_length": 5}, "too few expressions"),
        ({"max_args": 1}, "max_args ≥ 2"),
        ({"train": 0}, "must each be at least 1"),
    ],
)
def test_sizes_that_cannot_be_met_are_named(monkeypatch, options, said):
    monkeypatch.setattr("lrpe.lab.data.arena.listops_expressions.FORESTS", 5)
    with pytest.raises(LrpeError, match=said):
        listops.load_generated(**{"train": 5_000, "processes": 1} | options)


def write_official(folder, **changes):
    rows = "Source\tTarget\r\n( ( ( [MIN 3 ) 1 ) ] )\t1\r\n( ( ( [SM 9 ) 9 ) ] )\t8\r\n"
    for name in ("train", "val", "test"):
        (folder / f"basic_{name}.tsv").write_bytes(changes.get(name, rows.encode()))


def test_the_official_files_are_read_without_their_parentheses(tmp_path):
    write_official(tmp_path)
    loaded = listops.load_official(tmp_path)
    assert {name: len(split) for name, split in loaded.splits.items()} == {"train": 2, "validation": 2, "test": 2}
    sample = loaded.splits["validation"].sample(Draw(1))
    assert (sample["ids"].tolist(), sample["label"]) == ([13, 9, 9, 14], 8)
    assert loaded.facts["balance"]["train"] == [0, 1, 0, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "line 1: the header must name the columns Source and Target"),
        (b"Source\r\n[MIN 1 2 ]\r\n", "line 1: the header must name the columns Source and Target"),
        (b"Source\tTarget\n[MIN 1 2 ]\n", "line 2: a row must have 2 columns; got 1"),
        (b"Source\tTarget\n[MIN 1 2 ]\t1\n[MIN 1 2 ]\t2\n", "line 3: the value of Source is 1; got Target b'2'"),
        (b"Source\tTarget\n[MIN 1 2 ]\tx\n", "line 2: the value of Source is 1; got Target b'x'"),
        (b'Source\tTarget\n"[MIN 1 2 ]"\t1\n', "line 2: A ListOps expression must consist of"),
        (b"Source\tTarget\n[MIN 1 \xff ]\t1\n", r"line 2: .*got b'\\xff'"),
        (b"Source\tTarget\n[MIN 1 2\t1\n", "line 2: An expression must be one value"),
        (b"Source\tTarget\n\n", "line 2: a row must have 2 columns"),
    ],
)
def test_a_broken_file_is_named_with_its_line_and_leaves_nothing(tmp_path, content, said):
    write_official(tmp_path, val=content)
    with pytest.raises(LrpeError, match=rf"basic_val.tsv', {said}"):
        listops.load_official(tmp_path)
    assert not list((tmp_path / "cache").glob("lra-listops*"))


def test_a_folder_in_place_of_a_file_and_a_missing_file_are_named(tmp_path):
    write_official(tmp_path)
    (tmp_path / "basic_test.tsv").unlink()
    with pytest.raises(LrpeError, match=r"no basic_test.tsv"):
        listops.load_official(tmp_path)
    (tmp_path / "basic_test.tsv").mkdir()
    with pytest.raises(LrpeError, match="is a folder"):
        listops.load_official(tmp_path)


@given(st.binary(max_size=60))
def test_any_bytes_are_rows_or_a_clear_error(tmp_path_factory, content):
    file = tmp_path_factory.mktemp("fuzz") / "basic_train.tsv"
    for before in (b"", b"Source\tTarget\n", b"Source\tTarget\n[MIN 1 2 ]\t"):
        file.write_bytes(before + content)
        assert rows_or_error(file) is None or "basic_train.tsv', line" in rows_or_error(file)


def rows_or_error(file):
    try:
        list(listops.read_tsv(file))
    except LrpeError as error:
        return str(error)
