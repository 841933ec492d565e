"""``lrpe``: what the user typed becomes a verb, and the verb's outcome an exit code."""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from lrpe.errors import LrpeError

FAILED, WRONG, INTERRUPTED, PIPE_CLOSED, TERMINATED = 1, 2, 130, 141, 143


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
        print(f"lrpe: {error}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough, as in `lrpe verify | head -1`
        drop_output()
        return PIPE_CLOSED


def run(argv: Sequence[str]) -> int:
    try:
        from lrpe.cli.parser import parse
    except ModuleNotFoundError as error:
        if error.name not in ("jsonargparse", "docstring_parser"):
            raise
        raise LrpeError("The command line needs jsonargparse: pip install 'lrpe[cli]'") from None
    return parse(argv).run()


def drop_output() -> None:
    """Point stdout at nothing, so that Python does not try to write the rest when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
