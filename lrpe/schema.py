"""Check plain data against declared types where it is read from a file or a user.

Types are int, float, bool, str, Path, Literal, list, tuple, dict, dataclasses, and unions of these.
``Range`` in an ``Annotated`` type bounds a number. Options are checked against the signature of a function:
jsonargparse would need a parser per loader and task, and loading a dataset must not need jsonargparse.
"""

import difflib
import os
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from lrpe.errors import LrpeError, require, show, unknown_name

T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """Inclusive bounds of a number."""

    least: float
    most: float | None = None

    def __contains__(self, value: float) -> bool:
        return self.least <= value and (self.most is None or value <= self.most)  # NaN is in no range

    def __str__(self) -> str:
        return f"of at least {self.least:,}" if self.most is None else f"from {self.least:,} to {self.most:,}"


Count = Annotated[int, Range(1)]
Seed = Annotated[int, Range(0, 2**63 - 1)]  # what torch's generators take


def conform(value: Any, hint: Any, key: str) -> Any:
    """Return the value as its declared type; raise an ``LrpeError`` that names its key if it has another."""
    kind = get_origin(hint) or hint
    if kind is Annotated:
        return _conform_to_range(value, hint, key)
    if kind in (Union, types.UnionType):
        return _conform_to_one(value, get_args(hint), key)
    if kind is Literal:
        return _conform_to_choice(value, get_args(hint), key)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        return _build(kind, value, key)
    if kind is dict and isinstance(value, dict):
        return _conform_items(value, get_args(hint) or (str, Any), key)
    if kind in (list, tuple) and isinstance(value, list | tuple):
        return _conform_each(value, kind, get_args(hint) or (Any, ...), key)
    if kind is float and _is_of(value, int):
        return _to_float(value, key)
    if kind is Path and isinstance(value, str) and _can_be_path(value):
        return Path(value)
    if (kind is Any and _is_plain(value, key)) or (kind is not Any and _is_of(value, kind)):
        return value
    raise LrpeError(f"{key or 'it'} must be {_described(hint)}; got {show(value)}.")


def _conform_to_range(value: Any, hint: Any, key: str) -> Any:
    """Return a number within its range; the error states type and range together."""
    inner, *bounds = get_args(hint)
    try:
        found = conform(value, inner, key)
        require(all(found in each for each in bounds), "out of range")
    except LrpeError:
        raise LrpeError(f"{key} must be {_described(hint)}; got {show(value)}.") from None
    return found


def _conform_to_one(value: Any, hints: tuple[Any, ...], key: str) -> Any:
    """Return the value as the first type of a union that it conforms to."""
    if value is None and types.NoneType in hints:
        return None
    *others, last = (hint for hint in hints if hint is not types.NoneType)
    for hint in others:
        try:
            return conform(value, hint, key)
        except LrpeError:
            continue
    return conform(value, last, key)


def _conform_to_choice(value: Any, choices: tuple[Any, ...], key: str) -> Any:
    if not isinstance(value, str) or value not in choices:
        raise unknown_name(key, show(value) if not isinstance(value, str) else value, map(str, choices))
    return value


def _conform_items(values: dict[Any, Any], hints: tuple[Any, ...], key: str) -> dict[str, Any]:
    for name in values:
        require(isinstance(name, str), f"{key or 'it'} must have strings as keys; got {show(name)}.")
    return {name: conform(value, hints[1], f"{key}.{name}" if key else name) for name, value in values.items()}


def _conform_each(values: Any, kind: type, hints: tuple[Any, ...], key: str) -> Any:
    """Return list[X], tuple[X, ...] or tuple[X, Y]."""
    if kind is list or hints[1:] == (Ellipsis,):
        hints = (hints[0],) * len(values)
    require(len(values) == len(hints), f"{key} must have {len(hints)} values; got {show(list(values))}.")
    return kind(conform(value, hint, key) for value, hint in zip(values, hints, strict=True))


def _to_float(value: int, key: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise LrpeError(f"{key} is too large; got {show(value)}.") from None


def _can_be_path(text: str) -> bool:
    """Return whether file systems accept this name: not empty, at most 255 bytes per part."""
    parts = os.fsencode(text).split(b"/") if "\0" not in text else []
    return bool(text and parts) and len(text) < 4096 and max(map(len, parts)) <= 255


def _is_plain(value: Any, key: str) -> bool:
    """Return whether a value of undeclared type exists in JSON: Python callers can pass dates, sets and bytes."""
    if isinstance(value, dict):
        _conform_items(value, (str, Any), key)
    elif isinstance(value, list | tuple):
        _conform_each(value, list, (Any, ...), key)
    return value is None or isinstance(value, str | bool | int | float | list | tuple | dict)


def _is_of(value: Any, kind: Any) -> bool:
    """Return isinstance(value, kind), except that a bool is not a number."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a word",
    list: "a list",
    Path: "a path, of names with at most 255 bytes",
}


def _described(hint: Any) -> str:
    kind = get_origin(hint) or hint
    if kind is Annotated:
        inner, *bounds = get_args(hint)
        return " ".join([_described(inner), *map(str, bounds)])
    return _WORDS.get(kind, "keys and values" if kind is dict or is_dataclass(kind) else "a plain value")


def _build(kind: type[T], values: dict[str, Any], key: str) -> T:
    """Return a dataclass with these fields; missing fields have their defaults."""
    hints, prefix = get_type_hints(kind, include_extras=True), f"{key}." if key else ""
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise _unknown_key(f"{prefix}{name}", list(_keys(kind, prefix)), [f"{prefix}{other}" for other in known])
    needed = [field.name for field in fields(kind) if field.default is field.default_factory is MISSING]  # type: ignore[arg-type]
    missing = [f"{prefix}{name}" for name in needed if name not in values]
    require(not missing, f"{', '.join(missing)} must be given; got {', '.join(map(str, values)) or 'nothing'}.")
    return kind(**{name: conform(value, hints[name], f"{prefix}{name}") for name, value in values.items()})


def _keys(kind: type, prefix: str) -> Iterator[str]:
    """Yield the dotted keys of a dataclass and of the dataclasses inside it."""
    hints = get_type_hints(kind)
    for field in fields(kind):  # type: ignore[arg-type]
        yield f"{prefix}{field.name}"
        if is_dataclass(hints[field.name]):
            yield from _keys(hints[field.name], f"{prefix}{field.name}.")


def _unknown_key(key: str, candidates: list[str], siblings: list[str]) -> LrpeError:
    """Suggest keys with a similar last part: training.optimization.updates for training.updates."""
    wanted = key.rpartition(".")[2]
    ratio = {each: difflib.SequenceMatcher(None, wanted, each.rpartition(".")[2]).ratio() for each in candidates}
    near = sorted((each for each in candidates if ratio[each] >= 0.7), key=lambda each: -ratio[each])[:3]
    hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
    return LrpeError(f"There is no key named {show(key)}. {hint}Known: {', '.join(sorted(siblings))}.")


def conform_known(values: dict[str, Any], kind: type[T]) -> T:
    """Return a dataclass, ignoring keys that this version does not know."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return conform({name: value for name, value in values.items() if name in known}, kind, "")


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
