"""``lrpe``: what the user typed becomes a verb, and the verb's outcome an exit code."""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from lrpe.errors import LrpeError, StoppedError, require_extras

WRONG, INTERRUPTED, PIPE_CLOSED, TERMINATED = 2, 130, 141, 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``lrpe`` with these arguments, or those of the process: 0, or 1 if what was asked about does not hold."""
    if argv is None:  # the process is ours: a polite end unwinds, so that a measuring child ends too
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no Λ shows a question mark
    try:
        code = run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except LrpeError as error:
        say(in_one_line(error))
        return WRONG
    except StoppedError as stopped:
        say(str(stopped))
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough, as in `lrpe verify | head -1`
        drop_output()
        return PIPE_CLOSED


def say(text: str) -> None:
    """Print what ended the command; of the processes that torchrun started, the first to come says it for all."""
    if "RANK" in os.environ:
        from lrpe.lab.training.failures import is_first_to_report

        if not is_first_to_report(text):
            return
    print(f"lrpe: {text}", file=sys.stderr)


def run(argv: Sequence[str]) -> int:
    """Run the verb that was typed; what it needs and is not installed is named first, all of it."""
    from lrpe.lab.cli.verbs import extras_for

    command, extras = extras_for(argv)
    require_extras(command, "cli", *extras)

    from lrpe.lab.cli.parser import parse

    return parse(argv).run()


def in_one_line(error: LrpeError) -> str:
    """Return the sentence of an error; of what a user typed by the thousand characters it has the first hundred."""
    return " ".join(word if len(word) <= 200 else f"{word[:100]}…{word[-20:]}" for word in str(error).split())


def drop_output() -> None:
    """Point stdout at nothing, so that Python does not try to write the rest when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
