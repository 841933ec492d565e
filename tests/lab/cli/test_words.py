"""Text becomes what the signature of a function declares."""

from pathlib import Path

import pytest

from lrpe import LrpeError
from lrpe.lab.cli.words import parse_options, parse_word
from tests.test_options import load


def test_text_becomes_what_is_declared():
    words = {"length": "64", "packed": "False", "limit": "none", "kind": "hard", "name": "12"}
    found = parse_options(load, "books", words, positional=1)
    assert found == {"length": 64, "packed": False, "limit": None, "kind": "hard", "name": "12"}
    assert parse_options(load, "books", {"limit": "5", "packed": "yes"}, positional=1) == {"limit": 5, "packed": True}
    assert parse_word("a/b", Path | None, "--out") == Path("a/b")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("length", "abc", "length of books must be a whole number of at least 1; got 'abc'"),
        ("length", "-3", "length of books must be a whole number of at least 1; got -3"),
        ("length", "1.5", "got 1.5"),
        ("length", "²", "got '²'"),
        ("length", "", "got None"),
        ("length", "[" * 500, "must be a whole number"),
        ("packed", "perhaps", "packed of books must be true or false; got 'perhaps'"),
        ("limit", "0", "limit of books must be a whole number of at least 1; got 0"),
        ("kind", "medium", "There is no kind of books named 'medium'. Known: easy, hard."),
        ("lenght", "1", "There is no option of books named 'lenght'. Did you mean 'length'?"),
        ("path", "x", "There is no option of books named 'path'"),
    ],
)
def test_what_is_declared_otherwise_is_refused_with_the_option_the_value_and_what_is_allowed(name, text, said):
    with pytest.raises(LrpeError) as caught:
        parse_options(load, "books", {name: text}, positional=1)
    assert said in str(caught.value)
