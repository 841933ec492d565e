"""Old names of modules and of public names work for one version, and say where they are now."""

import pickle
import subprocess
import sys
from importlib import import_module

import pytest

import lrpe
from lrpe.moved import MODULES, NAMES


@pytest.mark.parametrize(("old", "new"), MODULES.items())
def test_an_old_module_is_the_new_one_and_warns(old, new, monkeypatch):
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{old}.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}; the old name will be removed in version"):
        module = import_module(old)
    assert module is import_module(new)
    assert module.__name__ == module.__spec__.name == new


def test_a_module_inside_an_old_package_has_one_copy_of_each_class():
    sys.modules.pop("lrpe.data.dataset", None)
    with pytest.warns(DeprecationWarning, match=r"lrpe\.data\.dataset is now lrpe\.lab\.data\.dataset"):
        old = import_module("lrpe.data.dataset")
    assert old.Dataset is import_module("lrpe.lab.data.dataset").Dataset


@pytest.mark.parametrize(("name", "package"), NAMES.items())
def test_an_old_name_is_the_new_one_and_warns_where_it_is_used(name, package):
    with pytest.warns(DeprecationWarning, match=f"lrpe.{name} is now {package}.{name}") as told:
        value = getattr(lrpe, name)
    assert value is getattr(import_module(package), name)
    assert told[0].filename == __file__


def test_public_names_do_not_warn(recwarn):
    assert all(getattr(lrpe, name) is not None for name in lrpe.__all__)
    assert not set(lrpe.__all__) & set(NAMES)
    assert 28 <= len(lrpe.__all__) <= 34
    assert not [warning for warning in recwarn if warning.category is DeprecationWarning]


@pytest.mark.parametrize("name", ["lrpe.nosuch", "lrpe.data.nosuch", "lrpe.encodings.nosuch"])
def test_a_module_that_never_was_is_not_found(name):
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
        import_module(name)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_pickle_that_names_an_old_module_is_read():
    saved = pickle.dumps(lrpe.CanonicalForm, protocol=0).replace(b"lrpe.theory.", b"lrpe.encodings.")
    assert pickle.loads(saved) is lrpe.CanonicalForm


@pytest.mark.parametrize("module", ["lrpe", "lrpe.cli"])
def test_python_m_is_the_command(module):
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("lrpe ")
