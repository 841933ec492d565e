"""``lrpe``: what the user typed becomes a verb, and the verb's outcome an exit code."""

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from lrpe.errors import LrpeError, StoppedError

EXTRA_OF = {  # modules that the core does without
    "jsonargparse": "cli",
    "docstring_parser": "cli",
    "transformers": "models",
    "safetensors": "models",
    "numpy": "data",
    "filelock": "data",
    "tokenizers": "data",
    "tqdm": "data",
    "sklearn": "data",
    "PIL": "data",
    "datasets": "hub",
}
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
        print(f"lrpe: {error}", file=sys.stderr)
        return WRONG
    except StoppedError as stopped:
        print(f"lrpe: {stopped}", file=sys.stderr)
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough, as in `lrpe verify | head -1`
        drop_output()
        return PIPE_CLOSED


def run(argv: Sequence[str]) -> int:
    try:
        from lrpe.cli.parser import parse

        return parse(argv).run()
    except ModuleNotFoundError as error:
        if error.name not in EXTRA_OF:
            raise
        raise LrpeError(f"This needs {error.name}: pip install 'lrpe[{EXTRA_OF[error.name]}]'") from None


def drop_output() -> None:
    """Point stdout at nothing, so that Python does not try to write the rest when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
