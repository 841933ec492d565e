"""The entry point of ``lrpe``: parse the arguments, run the verb and return its exit code."""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from lrpe.errors import LrpeError, StoppedError, require_extras
from lrpe.plugins import load_plugin

WRONG, _INTERRUPTED, _PIPE_CLOSED, _TERMINATED = 2, 130, 141, 143


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
    from lrpe.lab.cli.verbs import extras_for
    from lrpe.lab.cli.words import take_plugins

    words, files = take_plugins(argv)
    command, extras = extras_for(words)
    require_extras(command, "cli", *extras)

    from lrpe.lab.cli.parser import parse

    verb = parse(words)
    for file in files:
        load_plugin(file)
    return verb.run()


def _in_one_line(error: LrpeError) -> str:
    """Return the error's message on one line, with words longer than 200 characters shortened."""
    return " ".join(word if len(word) <= 200 else f"{word[:100]}…{word[-20:]}" for word in str(error).split())


def _drop_output() -> None:
    """Redirect stdout to the null device, so that Python does not fail flushing it at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
