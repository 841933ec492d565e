"""One exception, whose message names the way out."""

import pytest

from lrpe import LrpeError
from lrpe.errors import require, unknown_name


def test_users_who_catch_value_errors_catch_ours():
    assert issubclass(LrpeError, ValueError)


def test_a_law_that_holds_is_silent_and_a_broken_one_speaks():
    require(True, "never shown")
    with pytest.raises(LrpeError, match=r"^2 ≤ 1; got 3\.$"):
        require(False, "2 ≤ 1; got 3.")


def test_an_unknown_name_comes_with_the_nearest_and_with_all():
    error = unknown_name("basis", "housholder", ["identity", "householder"])
    assert isinstance(error, LrpeError)
    assert str(error) == (
        "There is no basis named 'housholder'. Did you mean 'householder'? Known: householder, identity."
    )


def test_a_name_near_to_none_comes_with_all():
    assert str(unknown_name("basis", "zzz", ["identity"])) == "There is no basis named 'zzz'. Known: identity."
