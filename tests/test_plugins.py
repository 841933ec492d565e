"""A plug-in is run once, if it is named, and registers names that nobody else has."""

import pytest

import lrpe
from lrpe import LrpeError
from lrpe.encodings.config import ANGLES, BASES
from lrpe.plugins import find_plugins, load_plugin, loaded_plugins
from lrpe.registry import Registry

pytestmark = pytest.mark.usefixtures("own_registries")

SOURCE = """
from lrpe.encodings.basis import Identity
from lrpe.encodings.config import BASES

BASES["{name}"] = lambda config: Identity(config.head_dim)
BASES["{name}"].times = {times}
"""


def write(folder, file="mine.py", name="mine", times=1):
    (folder / file).write_text(SOURCE.format(name=name, times=times))
    return folder / file


def test_a_plugin_registers_names_that_can_be_used_and_is_run_once(tmp_path):
    plugin = load_plugin(write(tmp_path))
    assert lrpe.verify(lrpe.encoding("mine*orthogonal", head_dim=4))
    assert plugin.names == {"mine"}
    maker = BASES["mine"]
    assert load_plugin(tmp_path / "mine.py") is plugin
    assert BASES["mine"] is maker


def test_a_plugin_that_has_changed_is_run_again_and_loses_its_old_names(tmp_path):
    load_plugin(write(tmp_path, name="old"))
    load_plugin(write(tmp_path, name="new", times=2))
    assert "old" not in BASES
    assert BASES["new"].times == 2
    assert [plugin.names for plugin in loaded_plugins()] == [{"new"}]


def test_the_plugins_of_a_configuration_are_those_whose_names_it_has(tmp_path):
    first, second = load_plugin(write(tmp_path)), load_plugin(write(tmp_path, "yours.py", "yours"))
    assert find_plugins({"encoding": ["type2", {"name": "mine*orthogonal"}]}) == [first]
    assert find_plugins([{"basis": "yours"}, "mine"]) == [first, second]
    assert find_plugins({"encoding": "type2", "mine": 3}) == []


@pytest.mark.parametrize(
    ("file", "source", "said"),
    [
        ("mine.txt", "", "must be a file of Python.*got .*mine.txt"),
        ("my-encoding.py", "", "must be a Python identifier; got 'my-encoding.py'"),
        ("mine.py", None, "cannot be read: No such file"),
        ("mine.py", "x = (", "line 1: SyntaxError"),
        ("mine.py", "\n\n1 / 0", "line 3: ZeroDivisionError: division by zero"),
        ("mine.py", SOURCE.format(name="householder", times=1), "must not replace 'householder', a name of lrpe"),
        ("mine.py", SOURCE.format(name="theirs", times=1), "must not replace 'theirs', a name of .*theirs.py"),
    ],
)
def test_what_cannot_be_a_plugin_is_refused_and_leaves_nothing_behind(file, source, said, tmp_path):
    load_plugin(write(tmp_path, "theirs.py", "theirs"))
    before = [dict(registry) for registry in Registry.every]
    if source is not None:
        prelude = 'from lrpe.encodings.config import ANGLES; ANGLES["half"] = None'  # registered before it fails
        (tmp_path / file).write_text(f"{prelude}{source}" if source.startswith("\n") else source)
    with pytest.raises(LrpeError, match=said):
        load_plugin(tmp_path / file)
    assert [dict(registry) for registry in Registry.every] == before
    assert "half" not in ANGLES
    assert len(loaded_plugins()) == 1


def test_two_files_of_one_name_are_refused(tmp_path):
    (tmp_path / "other").mkdir()
    load_plugin(write(tmp_path))
    with pytest.raises(LrpeError, match=r"Two plug-ins must have different names; got .*mine.py' and .*other/mine.py'"):
        load_plugin(write(tmp_path / "other", name="another"))
