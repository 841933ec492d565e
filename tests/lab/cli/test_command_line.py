import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from lrpe.lab.cli import main
from lrpe.lab.cli.command_line import VERBS
from lrpe.lab.cli.encodings import Verify
from lrpe.lab.cli.parser import Parser, add_options
from lrpe.lab.cli.words import Group


def test_the_version_is_the_installed_one(capsys):
    assert ended(["--version"]) == 0
    assert capsys.readouterr().out == f"lrpe {version('lrpe')}\n"


def test_help_lists_the_verbs_with_a_line_each(capsys):
    assert ended(["--help"]) == 0
    out = capsys.readouterr().out
    assert "verify" in out
    assert "bench" in out
    assert "Definition 3.1" in out


def test_every_option_of_every_verb_says_what_it_is():
    silent = [f"{verb.__name__}: {option}" for verb in find_verbs(VERBS) for option in options_without_help(verb)]
    assert not silent


def test_what_a_verb_inherits_is_explained_and_its_own_word_holds(capsys):
    assert ended(["bench", "length", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "number of threads, each" in out
    assert "5 if not given" in out
    assert "up to 2^LONGEST tokens" in out


def test_without_a_verb_the_help_is_shown(capsys):
    assert ended([]) == 2
    assert "verify" in capsys.readouterr().err
    assert ended(["bench"]) == 2
    assert "encoding" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "near"),
    [
        (["verfy"], "verify"),
        (["verify", "--hed-dim", "8"], "--head-dim"),
        (["verify", "--hed-dim=8"], "--head-dim"),
        (["bench", "encodin"], "encoding"),
        (["bench", "encoding", "--quik"], "--quick"),
    ],
)
def test_a_mistyped_word_names_the_nearest(argv, near, capsys):
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert f"Did you mean {near}" in captured.err
    assert captured.err.count("\n") == 1


def test_a_value_of_the_wrong_type_is_refused(capsys):
    assert main(["verify", "--head-dim", "wide"]) == 2
    assert "--head-dim must be a whole number from 1 to 4,096; got 'wide'" in capsys.readouterr().err


def test_the_help_of_an_option_has_its_default_and_no_type_of_python(capsys):
    assert ended(["table", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "--runs PATH folder with all runs (default: runs)." in out
    assert "<class" not in out
    assert "null" not in out
    assert ended(["generate", "--help"]) == 0
    assert "--seed N seed of sampling (default: 0)." in " ".join(capsys.readouterr().out.split())


def test_ctrl_c_is_quiet(monkeypatch, capsys):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Verify, "run", interrupted)
    assert main(["verify"]) == 130
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_a_closed_pipe_is_quiet():
    command = [sys.executable, "-m", "lrpe", "verify", "rope", "--head-dim", "4"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # long before anything is printed
    assert process.stderr.read() == ""
    assert process.wait() == 141
    process.stderr.close()


def find_verbs(verbs: Mapping[str, type | Group]) -> Iterator[type]:
    for verb in verbs.values():
        yield from find_verbs(verb.verbs) if isinstance(verb, Group) else [verb]


def options_without_help(verb: type) -> list[str]:
    parser = Parser()
    add_options(parser, verb)
    return [action.dest for action in parser._actions if not action.help]


def ended(argv: list[str]) -> int:
    """The code with which the parser ends the process."""
    with pytest.raises(SystemExit) as exit:
        main(argv)
    assert isinstance(exit.value.code, int)
    return exit.value.code


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")
def test_a_terminated_bench_leaves_no_child():
    process = subprocess.Popen(
        [sys.executable, "-m", "lrpe", "bench", "encoding"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert process.stderr is not None
    process.stderr.readline()  # the child says that it has begun
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.terminate()
    assert process.wait(timeout=60) == 143
    assert children
    assert not any(Path(f"/proc/{child}").exists() for child in children)
