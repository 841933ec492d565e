"""YAML as plain data: what JSON has, and no more."""

import re
from typing import Any

import yaml

from lrpe.errors import LrpeError


def load_plain(text: str, deepest: int) -> Any:
    """Return the value of a YAML text whose lists and dictionaries are at most ``deepest`` within each other."""
    try:
        return yaml.load(text, lambda stream: _Loader(stream, deepest))  # type: ignore[arg-type]
    except yaml.YAMLError as error:
        raise LrpeError(f"it is not YAML: {_problem(error)}") from error


def _problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    return f"{error.problem}, at line {mark.line + 1}, column {mark.column + 1}"  # type: ignore[attr-defined]


class _Loader(yaml.SafeLoader):
    """Refuses what JSON does not have before anything is made of it.

    Aliases let a few lines stand for gigabytes, tags ask for dates and sets, and depth exhausts the stack.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 (as yaml declares it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag.endswith((":null", ":bool"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str, deepest: int):
        super().__init__(text)
        self.depth, self.deepest = 0, deepest

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.refuse(yaml.AliasEvent, "an alias (*name) is not read here; write the value out")
        if getattr(self.peek_event(), "tag", None) is not None:
            self.refuse(yaml.Event, "a tag (!name) is not read here")
        if self.depth >= self.deepest:
            self.refuse(yaml.Event, f"it has more than {self.deepest} brackets within brackets")
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
