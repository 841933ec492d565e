"""What a file or a user gives is read as what is declared, or refused in a sentence."""

import os
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrpe import LrpeError
from lrpe.typed import DEEPEST, conform, parse_json, parse_yaml, read_json, read_yaml


@dataclass(frozen=True)
class Inner:
    pair: tuple[float, float]
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Outer:
    inner: Inner
    kind: Literal["a", "b"] = "a"
    count: int = 0
    many: tuple[int, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
    free: dict[str, Any] = field(default_factory=dict)
    again: "Outer | None" = None


def test_a_value_becomes_what_is_declared():
    values = {"inner": {"pair": [1, 2.5]}, "many": [1, 2], "again": {"inner": {"pair": [0, 0]}}, "free": {"x": [None]}}
    found = conform(values, Outer, "")
    assert found == Outer(Inner((1.0, 2.5)), many=(1, 2), again=Outer(Inner((0.0, 0.0))), free={"x": [None]})
    assert isinstance(found.inner.pair[0], float)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inner": 3}, "inner must be keys and values; got 3"),
        ({"inner": {}}, "inner.pair must be given; got nothing"),
        ({"inner": {"pair": [1]}}, "inner.pair has 2 values; got"),
        ({"inner": {"pair": [1, "x"]}}, "inner.pair must be a number; got 'x'"),
        ({"inner": {"pair": [1, 10**400]}}, "inner.pair is too large; got a number of more than 40 digits"),
        ({"count": True}, "count must be a whole number; got True"),
        ({"count": 1.5}, "count must be a whole number; got 1.5"),
        ({"kind": "c"}, "There is no kind named 'c'"),
        ({"kind": ["a"]}, "There is no kind named"),
        ({"figures": {"x": None}}, "figures.x must be a number; got None"),
        ({"figures": {1: 2.0}}, "figures has words as its keys; got 1"),
        ({"free": {"x": {1}}}, "free.x must be a plain value; got {1}"),
        ({"kin": "a"}, "Did you mean 'kind'"),
    ],
)
def test_what_is_declared_otherwise_is_refused_with_its_key(change, said):
    with pytest.raises(LrpeError) as caught:
        conform({"inner": {"pair": [0, 0]}} | change, Outer, "")
    assert said in str(caught.value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(plain)
def test_no_value_is_more_than_refused(value):
    fields = {"inner": value, "again": value, "many": value, "free": value, "figures": value, "kind": value}
    for name in fields:
        try:
            conform({"inner": {"pair": [0, 0]}, name: value}, Outer, "")
        except LrpeError:
            continue


@given(st.text(max_size=40))
def test_no_text_is_more_than_refused(text):
    for parse in (parse_json, parse_yaml):
        try:
            parse(text)
        except LrpeError:
            continue


@pytest.mark.parametrize("depth", [DEEPEST + 1, 500, 100_000])
def test_brackets_within_brackets_end_in_a_sentence(depth):
    with pytest.raises(LrpeError, match=f"more than {DEEPEST} brackets"):
        parse_json("[" * depth + "]" * depth)
    if depth < 1000:  # PyYAML's own time grows with the square of the depth
        with pytest.raises(LrpeError, match=f"more than {DEEPEST} brackets"):
            parse_yaml("[" * depth + "]" * depth)


def test_aliases_that_stand_for_gigabytes_are_refused():
    bomb = "a: &a [x, x]\n" + "".join(f"{k}: &{k} [*{p}, *{p}]\n" for p, k in zip("abcdefgh", "bcdefghi", strict=True))
    with pytest.raises(LrpeError, match="alias"):
        parse_yaml(bomb)


def test_what_cannot_be_read_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "cut").write_text('{"a": ')
    (tmp_path / "large").write_bytes(b" " * (2**18 + 1))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, said in {
        "absent": "No such file",
        "pipe": "not a file",
        ".": "not a file",
        "binary": "not UTF-8",
        "cut": "not JSON",
        "loop": "symbolic links",
    }.items():
        with pytest.raises(LrpeError) as caught:
            read_json(tmp_path / name, dict)
        assert said in str(caught.value)
        assert str(tmp_path / name) in str(caught.value)
    with pytest.raises(LrpeError, match="more than 262,144 bytes"):
        read_yaml(tmp_path / "large", dict)
