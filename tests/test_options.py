"""Options are what the signature of a function declares."""

from typing import Annotated, Literal

import pytest

from lrpe import LrpeError
from lrpe.schema import LONGEST, Range, check_name, conform_options


def load(
    path: str,
    length: Annotated[int, Range(1)] = 512,
    packed: bool = False,
    limit: Annotated[int, Range(1)] | None = None,
    kind: Literal["easy", "hard"] = "easy",
    name: str | list[str] = "x",
):
    """A loader."""


def test_values_of_python_and_of_files_are_checked_too():
    options = {"length": 3, "name": ["a", "b"]}
    assert conform_options(load, "books", options, positional=1) == options
    with pytest.raises(LrpeError, match="length of books must be a whole number of at least 1; got '3'"):
        conform_options(load, "books", {"length": "3"}, positional=1)
    with pytest.raises(LrpeError, match="books needs path; for example path=VALUE"):
        conform_options(load, "books", {})


@pytest.mark.parametrize("name", ["wikitext103", "householder*unitary", "type2+yarn", "rate-1e-3", "v1.5", "Größe"])
def test_a_plain_name_is_accepted(name):
    check_name(name, "variant")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/abs", "a/b", "a\\b", ".hidden", "a\nb", "x" * (LONGEST + 1)])
def test_a_name_that_leads_out_of_a_folder_is_refused(name):
    with pytest.raises(LrpeError, match="variant names a folder"):
        check_name(name, "variant")
