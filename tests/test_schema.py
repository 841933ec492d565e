"""What a file or a user gives is read as what is declared, or refused in a sentence."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrpe import LrpeError
from lrpe.schema import Range, conform
from lrpe.serialization import DEEPEST, parse_json, parse_yaml, read_json, read_yaml


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
    seed: Annotated[int, Range(0, 9)] = 0
    share: Annotated[float, Range(0)] | None = None
    place: Path | str | None = None


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
        ({"inner": {"pair": [1]}}, "inner.pair must have 2 values; got"),
        ({"inner": {"pair": [1, "x"]}}, "inner.pair must be a number; got 'x'"),
        ({"inner": {"pair": [1, 10**400]}}, "inner.pair is too large; got a number of more than 40 digits"),
        ({"count": True}, "count must be a whole number; got True"),
        ({"count": 1.5}, "count must be a whole number; got 1.5"),
        ({"kind": "c"}, "There is no kind named 'c'"),
        ({"kind": ["a"]}, "There is no kind named"),
        ({"figures": {"x": None}}, "figures.x must be a number; got None"),
        ({"figures": {1: 2.0}}, "figures must have strings as keys; got 1"),
        ({"free": {"x": {1}}}, "free.x must be a plain value; got {1}"),
        ({"kin": "a"}, "Did you mean 'kind'"),
        ({"pairs": 1}, "There is no key named 'pairs'. Did you mean 'inner.pair'?"),
        ({"seed": -1}, "seed must be a whole number from 0 to 9; got -1"),
        ({"seed": 10**23}, "seed must be a whole number from 0 to 9; got 100000000000000000000000"),
        ({"share": float("nan")}, "share must be a number of at least 0; got nan"),
        ({"share": -1}, "share must be a number of at least 0; got -1"),
        ({"place": 3}, "place must be a word; got 3"),
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
    with pytest.raises(LrpeError, match=f"more than {DEEPEST} brackets"):
        parse_yaml("[" * depth + "]" * depth)


def test_aliases_that_stand_for_gigabytes_are_refused():
    bomb = "a: &a [x, x]\n" + "".join(f"{k}: &{k} [*{p}, *{p}]\n" for p, k in zip("abcdefgh", "bcdefghi", strict=True))
    with pytest.raises(LrpeError, match="alias"):
        parse_yaml(bomb)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3), ("-5", -5), ("010", "010"), ("0x10", "0x10"), ("2023-13-45", "2023-13-45"), ("1:30", "1:30"),
        ("False", False), ("null", None), ("[1, 2.5, x]", [1, 2.5, "x"]), ("a: {b: .inf}", {"a": {"b": float("inf")}}),
    ],
)  # fmt: skip
def test_yaml_is_read_as_json_would_be(text, value):
    assert parse_yaml(text) == value


@pytest.mark.parametrize("text", ["!!python/object:os.system x", "!!set {a}", "!!int abc", "!!binary x", "9" * 300_000])
def test_yaml_that_is_more_than_plain_data_is_refused(text):
    with pytest.raises(LrpeError):
        parse_yaml(text)


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
