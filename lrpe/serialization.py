"""Read and write JSON and YAML as plain data, which is what JSON can express."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeVar

import yaml

from lrpe.errors import LrpeError, require
from lrpe.schema import conform

T = TypeVar("T")
_LARGEST_JSON, _LARGEST_YAML = 2**24, 2**18  # bytes; PyYAML takes seconds for a file of that size
DEEPEST = 40  # nested brackets; our own files have about 6
_TOO_DEEP = f"it has more than {DEEPEST} brackets within brackets"


def read_json(file: Path, kind: type[T]) -> T:
    """Return the content of a JSON file as ``kind``; raise ``LrpeError`` if it is unreadable or has another type."""
    return _naming(file, lambda: conform(parse_json(read_text(file)), kind, ""))


def read_yaml(file: Path, kind: type[T]) -> T:
    """Return the content of a YAML file as ``kind``; raise ``LrpeError`` if it is unreadable or has another type."""
    return _naming(file, lambda: conform(parse_yaml(read_text(file, _LARGEST_YAML)), kind, ""))


def _naming(file: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except LrpeError as error:
        raise LrpeError(f"{str(file)!r} cannot be read: {str(error).rstrip('.')}.") from error


def read_text(file: Path, largest: int = _LARGEST_JSON) -> str:
    """Return the text of a regular file; refuse a pipe, which might never end."""
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
    """Return the value of a JSON text, accepting NaN and Infinity, which Python writes although JSON lacks them."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise LrpeError(f"it is not JSON: {error}") from error
    except RecursionError:
        raise LrpeError(_TOO_DEEP) from None
    return _shallow(value)


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text as plain data: 1e-3 is a number, 010 and 2023-01-01 are strings."""
    require(len(text) <= _LARGEST_YAML, f"it has more than {_LARGEST_YAML:,} characters")
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise LrpeError(f"it is not YAML: {_problem(error)}") from error


def _shallow(value: Any) -> Any:
    """Return the value, or raise if it is nested so deeply that recursion could exhaust the stack."""
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


def _problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    return f"{error.problem}, at line {mark.line + 1}, column {mark.column + 1}"  # type: ignore[attr-defined]


class _Loader(yaml.SafeLoader):
    """Refuses what JSON cannot express, before constructing anything.

    A few lines of aliases can expand to gigabytes, tags create dates and sets, and depth exhausts the stack.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 (as yaml declares it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag.endswith((":null", ":bool"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.refuse(yaml.AliasEvent, "an alias (*name) is not read here; write the value out")
        if getattr(self.peek_event(), "tag", None) is not None:
            self.refuse(yaml.Event, "a tag (!name) is not read here")
        if self.depth >= DEEPEST:
            self.refuse(yaml.Event, _TOO_DEEP)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def refuse(self, kind: type, problem: str) -> None:
        if self.check_event(kind):
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=self.peek_event().start_mark)


_INT = r"[-+]?(?:0|[1-9][0-9]{0,99})$"  # Python refuses to read a number of thousands of digits
_FLOAT = r"(?:[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan)$"
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(_INT), list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(_FLOAT), list("-+.0123456789"))


def to_json(value: Any, indent: int | None = 2) -> str:
    """Return JSON that every parser reads: NaN and infinities, which JSON lacks, become null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
