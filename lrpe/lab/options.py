"""Checks options against the signature of a function, and names that become parts of a path.

By hand because jsonargparse would need a parser per loader and task, and loading a dataset must not need jsonargparse.
"""

import re
import types
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from lrpe.errors import LrpeError, require, unknown_name
from lrpe.schema import conform

LONGEST = 100  # characters; a file name has at most 255 bytes, and prefixes and suffixes are added


def check_name(name: str, what: str) -> None:
    """Raise ``LrpeError`` if the name has a separator or a leading dot, or is too long."""
    plain = re.fullmatch(r"[\w*+=,@~-][\w*+=,@~. -]*", name) is not None
    require(
        plain and len(name) <= LONGEST,
        f"{what} names a folder, so it must consist of at most {LONGEST} letters, digits and - _ . + * = , and not "
        f"start with a dot; got {name[: LONGEST + 20]!r}.",
    )


def conform_options(
    function: Callable[..., Any], what: str, options: Mapping[str, Any], given: int = 0
) -> dict[str, Any]:
    """Return the options, each converted to the type that the signature declares.

    Args:
        function: the function that will be called with the options.
        what: what errors call the function.
        options: values by name.
        given: number of leading parameters that are passed by position and so are not options.

    Raises:
        LrpeError: an option is unknown, missing, or of the wrong type or range.
    """
    declared = _declared(function, what, options, given)
    return {name: conform(value, declared[name], f"{name} of {what}") for name, value in options.items()}


def parse_options(function: Callable[..., Any], what: str, words: Mapping[str, str], given: int = 0) -> dict[str, Any]:
    """Return options given as text, converted as in ``conform_options``."""
    declared = _declared(function, what, words, given)
    return {name: parse_word(text, declared[name], f"{name} of {what}") for name, text in words.items()}


def parse_word(text: str, hint: Any, key: str) -> Any:
    """Return text converted to the declared type; ``key`` names it in errors."""
    kinds = [_bare(member) for member in _members(hint)]
    if types.NoneType in kinds and text in ("null", "none", "None"):
        return None
    if str in kinds or Path in kinds:
        if Path not in kinds and not _is_unicode(text):
            raise LrpeError(f"{key} must be UTF-8 text; got {text!r}.")
        return conform(text, hint, key)
    from lrpe.serialization import parse_yaml  # yaml comes with an extra, and `lrpe --help` must work without it

    try:
        value = parse_yaml(text)
    except LrpeError:
        value = text  # conform refuses it and names the expected type
    return conform(value, hint, key)


def _declared(function: Callable[..., Any], what: str, options: Mapping[str, Any], given: int) -> dict[str, Any]:
    """Return the declared type of each option, after checking for unknown and missing ones."""
    known = dict(list(signature(function).parameters.items())[given:])
    for name in options:
        if name not in known:
            raise unknown_name(f"option of {what}", name, known)
    lacking = [name for name, each in known.items() if each.default is Parameter.empty and name not in options]
    if lacking:
        raise LrpeError(f"{what} needs {', '.join(lacking)}; for example {lacking[0]}=VALUE.")
    return {name: each.annotation for name, each in known.items()}


def _is_unicode(text: str) -> bool:
    """Return whether text has no lone surrogates, which is how Python passes on bytes that are not UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _bare(hint: Any) -> Any:
    return _bare(get_args(hint)[0]) if get_origin(hint) is Annotated else hint
