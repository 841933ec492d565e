"""The entry point of ``lrpe``: all verbs by name, and ``main``, which runs the one that was typed.

A verb imports its dependencies when it runs, so that ``lrpe --help`` does not import torch.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from functools import cache
from io import TextIOWrapper
from typing import TYPE_CHECKING

from lrpe.errors import LrpeError, StoppedError, require_extras
from lrpe.lab.cli.bench import BENCHMARKS
from lrpe.lab.cli.data import DataList, DataPrepare, DataShow
from lrpe.lab.cli.doctor import Doctor
from lrpe.lab.cli.encodings import Explore, Verify
from lrpe.lab.cli.models import Export, Generate
from lrpe.lab.cli.runs import Evaluate, Report, Runs
from lrpe.lab.cli.table import MakeTable, RunDemo
from lrpe.lab.cli.train import Train
from lrpe.lab.cli.words import Group, Verb, take_plugins
from lrpe.plugins import load_plugin

if TYPE_CHECKING:
    from lrpe.lab.cli.parser import Parser

WRONG, _INTERRUPTED, _PIPE_CLOSED, _TERMINATED = 2, 130, 141, 143

VERBS: dict[str, type[Verb] | Group] = {
    "demo": RunDemo,
    "table": MakeTable,
    "train": Train,
    "evaluate": Evaluate,
    "generate": Generate,
    "runs": Runs,
    "report": Report,
    "doctor": Doctor,
    "verify": Verify,
    "data": Group("List, show and prepare the datasets.", {"list": DataList, "show": DataShow, "prepare": DataPrepare}),
    "explore": Explore,
    "export": Export,
    "bench": Group("Measure speed relative to a limit of the machine and to other implementations.", BENCHMARKS),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``lrpe`` with ``argv``, or the process's arguments; return the exit code, 1 if a check or a cell fails."""
    if argv is None:  # the process is ours: SIGTERM unwinds the stack, so that a measuring child process ends too
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show Λ prints a question mark
    try:
        code = run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except LrpeError as error:
        say(_in_one_line(error))
        return WRONG
    except StoppedError as stopped:
        say(str(stopped))
        return _INTERRUPTED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of our output closed it, as in `lrpe verify | head -1`
        _drop_output()
        return _PIPE_CLOSED


def say(text: str) -> None:
    """Print why the command ended; under torchrun, only the first process to report prints it."""
    if "RANK" in os.environ:
        from lrpe.lab.training.processes import is_first_to_report

        if not is_first_to_report(text):
            return
    print(f"lrpe: {text}", file=sys.stderr)


def run(argv: Sequence[str]) -> int:
    """Run the verb that was typed, after its plug-ins, and after checking that the extras it needs are installed."""
    words, files = take_plugins(argv)
    command, extras = extras_for(words)
    require_extras(command, "cli", *extras)

    verb = parse(words)
    for file in files:
        load_plugin(file)
    return verb.run()


def parse(words: Sequence[str]) -> Verb:
    """Return the verb that was typed, with its options; the parser needs the extra ``cli``."""
    from lrpe.lab.cli import parser

    return parser.parse(words, *_make_parser())


@cache
def _make_parser() -> "tuple[Parser, dict[tuple[str, ...], type[Verb]]]":
    from lrpe.lab.cli.parser import make_parser

    return make_parser(VERBS)


def extras_for(argv: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the known part of the command that was typed, and the extras that it needs besides the parser's."""
    words = [word for word in argv if not word.startswith("-")]
    verb = VERBS.get(words[0]) if words else None
    if isinstance(verb, Group):
        inner = verb.verbs.get(words[1]) if len(words) > 1 else None
        return (f"lrpe {words[0]}", ()) if inner is None else (f"lrpe {words[0]} {words[1]}", inner.needs)
    return ("lrpe", ()) if verb is None else (f"lrpe {words[0]}", verb.needs)


def _in_one_line(error: LrpeError) -> str:
    """Return the error's message on one line, with words longer than 200 characters shortened."""
    return " ".join(word if len(word) <= 200 else f"{word[:100]}…{word[-20:]}" for word in str(error).split())


def _drop_output() -> None:
    """Redirect stdout to the null device, so that Python does not fail flushing it at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
