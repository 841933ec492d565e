"""JSON and YAML as declared types: what a file or a user gives is checked where it is read."""

import json
import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from lrpe.errors import LrpeError, require, unknown_name

T = TypeVar("T")
LARGEST_JSON, LARGEST_YAML = 2**24, 2**18  # bytes; PyYAML takes seconds for a file of that size
DEEPEST = 40  # brackets within brackets; our own files have about 6


def read_json(file: Path, kind: type[T]) -> T:
    """Return what a JSON file holds, as ``kind``; ``LrpeError`` if it cannot be read or holds something else."""
    return _naming(file, lambda: conform(parse_json(read_text(file)), kind, ""))


def read_yaml(file: Path, kind: type[T]) -> T:
    """Return what a YAML file holds, as ``kind``; ``LrpeError`` if it cannot be read or holds something else."""
    return _naming(file, lambda: conform(parse_yaml(read_text(file, LARGEST_YAML)), kind, ""))


def _naming(file: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except LrpeError as error:
        raise LrpeError(f"{str(file)!r} cannot be read: {str(error).rstrip('.')}.") from error


def read_text(file: Path, largest: int = LARGEST_JSON) -> str:
    """Return the text of a regular file; a pipe, which might never end, is none."""
    try:
        about = file.stat()
        require(S_ISREG(about.st_mode), "it is not a file")
        require(about.st_size <= largest, f"it has more than {largest:,} bytes")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise LrpeError(error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise LrpeError(f"it is not UTF-8 text, at byte {error.start + 1}") from error


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; NaN and Infinity, which JSON lacks but Python once wrote, are read too."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise LrpeError(f"it is not JSON: {error}") from error
    except RecursionError:
        raise LrpeError(_TOO_DEEP) from None
    return _shallow(value)


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text. Aliases, which let a few lines stand for gigabytes, are refused."""
    try:
        value = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # ValueError: a date such as 2023-13-45
        raise LrpeError(f"it is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise LrpeError(_TOO_DEEP) from None
    return _shallow(value)


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (*name) is not read here; write the value out")
        return super().compose_node(parent, index)


_TOO_DEEP = f"it has more than {DEEPEST} brackets within brackets"


def _shallow(value: Any) -> Any:
    """Return the value, unless it is nested so deeply that walking through it could exhaust the stack."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _parts(outer)]
        if not level:
            return value
    raise LrpeError(_TOO_DEEP)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def conform(value: Any, hint: Any, key: str) -> Any:
    """Return the value as the type that is declared for it; ``LrpeError`` with its key if it is not of that type."""
    kind = get_origin(hint) or hint
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
    if (kind is Any and _is_plain(value, key)) or (kind is not Any and _is_of(value, kind)):
        return value
    raise LrpeError(f"{key or 'it'} must be {_described(hint)}; got {_shown(value)}.")


def _conform_to_one(value: Any, hints: tuple[Any, ...], key: str) -> Any:
    """X | None: the unions that are declared have one other member."""
    if value is None:
        return None
    (hint,) = (hint for hint in hints if hint is not types.NoneType)
    return conform(value, hint, key)


def _conform_to_choice(value: Any, choices: tuple[Any, ...], key: str) -> Any:
    if not isinstance(value, str) or value not in choices:
        raise unknown_name(key, _shown(value) if not isinstance(value, str) else value, map(str, choices))
    return value


def _conform_items(values: dict[Any, Any], hints: tuple[Any, ...], key: str) -> dict[str, Any]:
    for name in values:
        require(isinstance(name, str), f"{key or 'it'} has words as its keys; got {_shown(name)}.")
    return {name: conform(value, hints[1], f"{key}.{name}" if key else name) for name, value in values.items()}


def _conform_each(values: Any, kind: type, hints: tuple[Any, ...], key: str) -> Any:
    """list[X], tuple[X, ...] or tuple[X, Y]."""
    if kind is list or hints[1:] == (Ellipsis,):
        hints = (hints[0],) * len(values)
    require(len(values) == len(hints), f"{key} has {len(hints)} values; got {_shown(list(values))}.")
    return kind(conform(value, hint, key) for value, hint in zip(values, hints, strict=True))


def _to_float(value: int, key: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise LrpeError(f"{key} is too large; got {_shown(value)}.") from None


def _is_plain(value: Any, key: str) -> bool:
    """Whether a value of no declared type is one that JSON has: YAML also has dates, sets and bytes."""
    if isinstance(value, dict):
        _conform_items(value, (str, Any), key)
    elif isinstance(value, list | tuple):
        _conform_each(value, list, (Any, ...), key)
    return value is None or isinstance(value, str | bool | int | float | list | tuple | dict)


def _is_of(value: Any, kind: Any) -> bool:
    """As isinstance has it, but yes and no are not numbers."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _described(hint: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", list: "a list"}
    kind = get_origin(hint) or hint
    return words.get(kind, "keys and values" if kind is dict or is_dataclass(kind) else "a plain value")


def _shown(value: Any) -> str:
    """The value, shortened: a file may hold anything."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "a number of more than 40 digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _build(kind: type[T], values: dict[str, Any], key: str) -> T:
    """A dataclass of these fields; a field that is not given has its default."""
    hints, prefix = get_type_hints(kind), f"{key}." if key else ""
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise unknown_name("key", f"{prefix}{name}", [f"{prefix}{other}" for other in known])
    needed = [field.name for field in fields(kind) if field.default is field.default_factory is MISSING]  # type: ignore[arg-type]
    missing = [f"{prefix}{name}" for name in needed if name not in values]
    require(not missing, f"{', '.join(missing)} must be given; got {', '.join(map(str, values)) or 'nothing'}.")
    return kind(**{name: conform(value, hints[name], f"{prefix}{name}") for name, value in values.items()})
