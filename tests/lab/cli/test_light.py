"""The command line on a light install, and what a word costs before it is known to be right."""

import subprocess
import sys

import pytest

from lrpe.errors import _NEEDED
from lrpe.lab.cli import main
from lrpe.lab.cli.command_line import VERBS
from lrpe.lab.cli.words import Group
from lrpe.lab.experiments.columns import COLUMNS
from lrpe.lab.experiments.methods import COLUMN_NAMES, TABLE_NAMES
from lrpe.lab.experiments.tables import TABLES

pytestmark = pytest.mark.slow

PLACES = [
    (word, inner) if inner else (word,)
    for word, verb in VERBS.items()
    for inner in (verb.verbs if isinstance(verb, Group) else [""])
]
HEAVY = ("torch", "transformers", "numpy", "sklearn", "altair", "PIL")


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_and_typos_import_nothing_heavy():
    typos = [["table", "lmm"], ["table", "lm", "--columns", "bokks"], ["table", "lm", "--rows", "tpye2"]]
    typos += [["train", "wikitex"], ["train", "stdlib", "--scale", "smal"], ["verify", "--head-dim", "0"], ["verfy"]]
    code = f"""
import contextlib, io, sys
from lrpe.lab.cli import main
for words in {[["--help"], ["--version"], *([*place, "--help"] for place in PLACES)]!r} + {typos!r}:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            assert main(words) == 2, words
    print(*words, *(name for name in {HEAVY!r} if name in sys.modules), sep=",")
"""
    lines = run_python(code).splitlines()
    assert len(lines) == 2 + len(PLACES) + len(typos)
    assert not [line for line in lines if set(line.split(",")) & set(HEAVY)]


def test_on_a_light_install_every_command_is_one_sentence_that_names_all_that_is_missing():
    code = f"""
import sys
for name in {sorted({name for names in _NEEDED.values() for name in names} | {"yaml"})!r}:
    sys.modules[name] = None
from lrpe.lab.cli import main
for words in {[["--help"], [], *map(list, PLACES)]!r}:
    sys.stderr.write(" ".join(words) + " > ")
    assert main(words) == 2
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(" > lrpe: ") for line in done.stderr.splitlines())
    assert len(said) == 2 + len(PLACES)
    assert all("not installed: pip install 'lrpe[cli" in sentence for sentence in said.values())
    assert said["--help"].startswith("lrpe needs docstring_parser, jsonargparse, which are not installed")
    assert said["train"] == (
        "lrpe train needs PIL, docstring_parser, filelock, jsonargparse, numpy, safetensors, scipy, sklearn, "
        "tokenizers, tqdm, transformers, which are not installed: pip install 'lrpe[cli,train]', "
        "or in a checkout of lrpe pip install '.[cli,train]'."
    )


@pytest.mark.parametrize("missing", sorted({name for names in _NEEDED.values() for name in names}))
def test_one_missing_package_is_named_before_the_verb_begins(missing, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, missing, None)
    needing = [word for word, verb in VERBS.items() if not isinstance(verb, Group) and missing in modules_of(verb)]
    for word in needing:
        assert main([word, "--nonsense"]) == 2
        assert f"lrpe {word} needs {missing}, which is not installed" in capsys.readouterr().err


def modules_of(verb) -> set[str]:
    return {name for extra in ("cli", *verb.needs) for name in _NEEDED[extra]}


def test_the_names_that_are_checked_first_are_those_that_there_are():
    assert set(TABLE_NAMES) == {*TABLES, "speed"}
    assert list(COLUMN_NAMES) == list(COLUMNS)
