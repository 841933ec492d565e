"""One exception, whose message names the way out."""

import sys
import tomllib
from pathlib import Path

import pytest

from lrpe import LrpeError
from lrpe.errors import _NEEDED, require, require_extras, unknown_name


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


def test_a_missing_extra_names_every_missing_module_and_a_command_for_an_index_and_a_checkout(monkeypatch):
    require_extras("lrpe train", "cli", "train")
    for module in ("jsonargparse", "transformers", "tokenizers"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(LrpeError) as raised:
        require_extras("lrpe train", "cli", "train")
    assert str(raised.value) == (
        "lrpe train needs jsonargparse, tokenizers, transformers, which are not installed: pip install "
        "'lrpe[cli,train]', or in a checkout of lrpe pip install '.[cli,train]'."
    )
    with pytest.raises(LrpeError, match=r"needs transformers, which is not installed: pip install 'lrpe\[models\]'"):
        require_extras("lrpe.models", "models")


def test_what_an_extra_is_said_to_bring_it_installs():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: " ".join(listed) for name, listed in project["optional-dependencies"].items()}
    extras["train"] = extras["train"].replace("lrpe[models,data]", f"{extras['models']} {extras['data']}")
    packages = {"sklearn": "scikit-learn", "PIL": "pillow", "vl_convert": "vl-convert-python"}
    packages["docstring_parser"] = "jsonargparse[signatures]"
    for extra, modules in _NEEDED.items():
        assert not [module for module in modules if packages.get(module, module) not in extras[extra]], extra
