"""The one exception that users catch, and the one that says that they asked for it."""

import difflib
from collections.abc import Callable, Iterable
from inspect import signature
from typing import Any


class LrpeError(ValueError):
    """A broken law: the message gives the law, the values that break it and the way out."""


class StoppedError(Exception):
    """A run was asked to end, and has saved itself: the same command goes on."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> LrpeError:
    """The error for a name that nobody has, with the nearest names that somebody has."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
    return LrpeError(f"There is no {kind} named {name!r}. {hint}Known: {', '.join(names)}.")


def check_options(function: Callable[..., Any], what: str, *arguments: Any, **options: Any) -> None:
    """The error for a call that the function does not take, with the options that it has."""
    try:
        signature(function).bind(*arguments, **options)
    except TypeError as error:
        known = [str(parameter) for parameter in signature(function).parameters.values()][len(arguments) :]
        raise LrpeError(f"{what} does not take these: {error}. Its options: {', '.join(known) or 'none'}.") from None


def require(holds: bool, message: str | Callable[[], str]) -> None:
    """Raise ``LrpeError(message)`` unless the law holds.

    A message with sizes of the input in it is given as a function: it is written only when needed, and a compiler that
    traces the check does not take the sizes for constants.
    """
    if not holds:
        raise LrpeError(message if isinstance(message, str) else message())
