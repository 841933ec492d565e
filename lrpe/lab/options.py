"""Checks options against the signature of a function, and names that become parts of a path.

By hand because jsonargparse would need a parser per loader and task, and loading a dataset must not need jsonargparse.
"""

import re
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any

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
    function: Callable[..., Any], what: str, options: Mapping[str, Any], positional: int = 0
) -> dict[str, Any]:
    """Return the options, each converted to the type that the signature declares.

    Args:
        function: the function that will be called with the options.
        what: what errors call the function.
        options: values by name.
        positional: number of leading parameters that are passed by position and so are not options.

    Raises:
        LrpeError: an option is unknown, missing, or of the wrong type or range.
    """
    types = find_option_types(function, what, options, positional)
    return {name: conform(value, types[name], f"{name} of {what}") for name, value in options.items()}


def find_option_types(
    function: Callable[..., Any], what: str, options: Mapping[str, Any], positional: int
) -> dict[str, Any]:
    """Return the declared type of every option; raise ``LrpeError`` for an unknown or a missing one."""
    known = dict(list(signature(function).parameters.items())[positional:])
    for name in options:
        if name not in known:
            raise unknown_name(f"option of {what}", name, known)
    lacking = [name for name, each in known.items() if each.default is Parameter.empty and name not in options]
    if lacking:
        raise LrpeError(f"{what} needs {', '.join(lacking)}; for example {lacking[0]}=VALUE.")
    return {name: each.annotation for name, each in known.items()}
