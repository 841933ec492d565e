"""Options are what the signature of a function declares."""

from pathlib import Path
from typing import Annotated, Literal

import pytest

from lrpe import LrpeError
from lrpe.lab.options import LONGEST, check_name, conform_options, parse_options, parse_word
from lrpe.schema import Range


def load(
    path: str,
    length: Annotated[int, Range(1)] = 512,
    packed: bool = False,
    limit: Annotated[int, Range(1)] | None = None,
    kind: Literal["easy", "hard"] = "easy",
    name: str | list[str] = "x",
):
    """A loader."""


def test_text_becomes_what_is_declared():
    words = {"length": "64", "packed": "False", "limit": "none", "kind": "hard", "name": "12"}
    found = parse_options(load, "books", words, given=1)
    assert found == {"length": 64, "packed": False, "limit": None, "kind": "hard", "name": "12"}
    assert parse_options(load, "books", {"limit": "5", "packed": "yes"}, given=1) == {"limit": 5, "packed": True}
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
        parse_options(load, "books", {name: text}, given=1)
    assert said in str(caught.value)


def test_values_of_python_and_of_files_are_checked_too():
    options = {"length": 3, "name": ["a", "b"]}
    assert conform_options(load, "books", options, given=1) == options
    with pytest.raises(LrpeError, match="length of books must be a whole number of at least 1; got '3'"):
        conform_options(load, "books", {"length": "3"}, given=1)
    with pytest.raises(LrpeError, match="books needs path; for example path=VALUE"):
        conform_options(load, "books", {})


@pytest.mark.parametrize("name", ["wikitext103", "householder*unitary", "type2+yarn", "rate-1e-3", "v1.5", "Größe"])
def test_a_plain_name_is_accepted(name):
    check_name(name, "variant")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/abs", "a/b", "a\\b", ".hidden", "a\nb", "x" * (LONGEST + 1)])
def test_a_name_that_leads_out_of_a_folder_is_refused(name):
    with pytest.raises(LrpeError, match="variant names a folder"):
        check_name(name, "variant")
