import json
from dataclasses import asdict

import pytest

from lrpe.errors import LrpeError
from lrpe.lab.benchmarks.compare import NOISE, compare_results, word_for
from lrpe.lab.benchmarks.lines import Line, missing_line

STAMP = {"date": "today", "commit": "0123456789abcdef", "machine": "one", "python": "3.12", "versions": {"torch": "2"}}
RESULT = {"benchmark": "attention", "quick": False, "stamp": STAMP, "settings": {"threads": 1}}


def timed(low, figure, high, better="lower", row="ours ÷ theirs"):
    return Line(row, "N = 8", None, "", figure, low, high, 0.001, better=better)


def counted(figure):
    return Line("memory", "N = 8", None, "", figure)


def saved(folder, name, *lines, **changes):
    file = folder / f"{name}.json"
    file.write_text(json.dumps(RESULT | {"lines": [asdict(line) for line in lines]} | changes), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("a", "b", "word"),
    [
        (timed(1.0, 1.1, 1.2), timed(1.2, 1.3, 1.4), NOISE),
        (timed(1.0, 1.1, 1.2), timed(1.3, 1.4, 1.5), "slower"),
        (timed(1.0, 1.1, 1.2), timed(0.7, 0.8, 0.9), "faster"),
        (timed(0.8, 0.9, 1.0, "higher"), timed(0.5, 0.6, 0.7, "higher"), "slower"),
        (timed(0.8, 0.9, 1.0, "higher"), timed(1.1, 1.2, 1.3, "higher"), "faster"),
        (counted(4.0), counted(4.001), NOISE),
        (counted(4.0), counted(5.0), "more"),
        (counted(4.0), counted(3.0), "less"),
    ],
)
def test_only_what_is_beyond_the_noise_is_a_change(a, b, word):
    assert word_for(a, b) == word


def test_rows_that_both_have_are_compared_and_the_others_named(tmp_path):
    a = saved(tmp_path, "a", timed(1.0, 1.0, 1.0), timed(1, 1, 1, row="old"), missing_line("absent", "N = 8", 1))
    b = saved(tmp_path, "b", timed(2.0, 2.0, 2.0), timed(1, 1, 1, row="new"))
    found = compare_results(a, b)
    assert [(change.b.row, change.ratio, change.word) for change in found.changes] == [("ours ÷ theirs", 2.0, "slower")]
    assert (found.only_a, found.only_b) == (["old, N = 8"], ["new, N = 8"])
    text = str(found)
    for words in ("slower", "Only A has old, N = 8.", "Only B has new, N = 8.", "commit 0123456789ab", "today"):
        assert words in text
    assert "They differ" not in text
    assert json.loads(json.dumps(found.to_dict()))["changes"][0]["word"] == "slower"


def test_what_they_were_measured_with_is_told_where_it_differs(tmp_path):
    a = saved(tmp_path, "a", timed(1, 1, 1))
    other = STAMP | {"machine": "two", "versions": {"torch": "3"}}
    b = saved(tmp_path, "b", timed(1, 1, 1), stamp=other, quick=True, settings={"threads": 2})
    text = str(compare_results(a, b))
    for name in ("machine: one and two", "torch: 2 and 3", "threads: 1 and 2", "--quick: False and True"):
        assert f"They differ in {name}" in text


def test_rows_of_encodings_without_a_goal_are_compared_too(tmp_path):
    figure = {"ratio": 2.0, "low": 1.9, "high": 2.1, "seconds": 0.1}
    shape = {"shape": [1, 2, 8, 4], "rows": [{"name": "P", "forward": figure, "both": None}]}
    files = [saved(tmp_path, name, benchmark="encoding", shapes=[shape]) for name in "ab"]
    (change,) = compare_results(*files).changes
    assert (change.a.row, change.a.at, change.word) == ("P, forward", "1×2×8×4", NOISE)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read: No such file"),
        ("not JSON", "it is not JSON: Expecting value"),
        (b"\xff\xfe", "it is not UTF-8 text"),
        ("[]", "must be keys and values"),
        ('{"lines": []}', "has a key 'benchmark'"),
        (json.dumps(RESULT | {"benchmark": "decode"}), "'attention' and .* of 'decode'"),
        (json.dumps(RESULT | {"lines": [{"row": "a"}]}), "written by --save can be compared"),
        (json.dumps(RESULT | {"lines": [{"made": "up"}]}), "written by --save can be compared"),
        ('{"benchmark": "attention"}', "written by --save can be compared"),
    ],
)
def test_a_file_that_is_no_such_result_is_one_sentence(tmp_path, content, sentence):
    good, bad = saved(tmp_path, "good", timed(1, 1, 1)), tmp_path / "bad.json"
    if content is not None:
        bad.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(LrpeError, match=sentence):
        compare_results(good, bad)
