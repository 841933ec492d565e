"""The words of the command line: what a verb is, and how lists, pairs, dotted keys and typed values are written."""

import os
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, Union, get_args, get_origin

from lrpe.errors import LrpeError, require, unknown_name
from lrpe.schema import Seed, conform, find_option_types

Word = TypeVar("Word", str, Path)


class Verb(Protocol):
    """A command: a dataclass whose fields are its options and whose docstring is its help.

    ``needs`` lists the extras of lrpe that it requires.
    """

    needs: ClassVar[tuple[str, ...]]

    def run(self) -> int:
        """Run the command and return the exit code."""
        ...


@dataclass(frozen=True)
class Group:
    """A verb with subcommands, such as ``lrpe bench encoding``."""

    summary: str
    verbs: Mapping[str, type[Verb]]


def words(text: str) -> list[str]:
    """Return the list written as a,b,c."""
    return [word.strip() for word in text.split(",") if word.strip()]


def seeds(text: str) -> list[int]:
    """Return the seeds written as 0,1,2."""
    numbers = words(text)
    require(bool(numbers), f"--seeds must be numbers, such as 0,1,2; got --seeds {text!r}.")
    return [parse_word(word, Seed, "Each of --seeds") for word in numbers]


def pairs(text: str, what: str) -> dict[str, str]:
    """Return the pairs written as name=value,name=value; an error message starts with ``what``.

    Parsed by hand: jsonargparse reads dictionaries as JSON or YAML, whose braces and quotes a shell interprets.
    """
    values = {}
    for part in words(text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        require(bool(name and equals and value), f"{what}, separated by commas; got {part!r}.")
        values[name] = value
    return values


def paths(text: str) -> dict[str, str]:
    """Return the paths written as NAME=PATH,NAME=PATH; refuse a path that does not exist."""
    from lrpe.lab.data.catalog import CATALOG, split_source
    from lrpe.lab.data.dataset import HERE, HUB
    from lrpe.lab.experiments.methods import COLUMN_NAMES

    paths_by_name = pairs(text, "--data must be NAME=PATH")
    for name, source in paths_by_name.items():
        if name not in COLUMN_NAMES and name not in CATALOG:
            raise unknown_name("column or dataset", name, {*COLUMN_NAMES, *CATALOG})
        _, path = split_source(source)
        exists = path in (HUB, HERE) or os.path.exists(path)
        require(exists, f"--data must name a path that exists, hub or here; got {name}={source!r}.")
    return paths_by_name


def one(names: list[Word], verb: str, what: str) -> Word:
    """Return the only name; raise LrpeError for none or several."""
    require(len(names) == 1, f"lrpe {verb} takes exactly one {what}; got {' '.join(map(str, names)) or 'none'}.")
    return names[0]


def take_dotted(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Separate dotted keys and their values from the other words; the verb interprets them.

    >>> take_dotted(["train", "books", "--model.norm", "rms", "--data.path=x.y", "--out", "a.b"])
    (['train', 'books', '--out', 'a.b'], {'model.norm': 'rms', 'data.path': 'x.y'})
    """
    rest, dotted, words = [], {}, iter(argv)
    for word in words:
        key, equals, value = word.partition("=")
        if not key.startswith("--") or "." not in key:
            rest.append(word)
            continue
        text = value if equals else next(words, None)
        if text is None or (not equals and text.startswith("--")):
            raise LrpeError(f"{key} needs a value: {key} VALUE; got none.")
        dotted[key.removeprefix("--")] = text
    return rest, dotted


def take_plugins(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate the files of ``--plugin FILE``, which any verb takes, from the other words.

    >>> take_plugins(["table", "lm", "--plugin", "mine.py", "--rows", "flip"])
    (['table', 'lm', '--rows', 'flip'], ['mine.py'])
    """
    rest, files, words = [], [], iter(argv)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag != "--plugin":
            rest.append(word)
            continue
        file = value if equals else next(words, "")
        require(bool(file) and not file.startswith("--"), "--plugin needs a file: --plugin FILE; got none.")
        files.append(file)
    return rest, files


def read_dotted(keys: Mapping[str, str]) -> dict[str, Any]:
    """Return dotted keys and the YAML text of their values as nested dictionaries; drop the prefix ``experiment.``.

    >>> read_dotted({"training.seed": "1", "training.precision": "float32", "experiment.scored": "2"})
    {'training': {'seed': 1, 'precision': 'float32'}, 'scored': 2}
    """
    from lrpe.lab.experiments.experiment import merge  # imported here because it imports torch

    nested: dict[str, Any] = {}
    for key, text in keys.items():
        value = _read_value(key, text)
        for part in reversed(key.removeprefix("experiment.").split(".")):
            value = {part: value}
        nested = merge(nested, value)
    return nested


def _read_value(key: str, text: str) -> Any:
    from lrpe.serialization import parse_yaml

    try:
        return parse_yaml(text)
    except LrpeError as error:
        raise LrpeError(f"The value of --{key[:80]} cannot be read: {error}.") from error


def parse_options(
    function: Callable[..., Any], what: str, texts: Mapping[str, str], positional: int = 0
) -> dict[str, Any]:
    """Return options written as text, converted to the types that the function declares; see ``conform_options``."""
    declared = find_option_types(function, what, texts, positional)
    return {name: parse_word(text, declared[name], f"{name} of {what}") for name, text in texts.items()}


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


def _is_unicode(text: str) -> bool:
    """Return whether text has no lone surrogates, which is how Python passes on bytes that are not UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _bare(hint: Any) -> Any:
    return _bare(get_args(hint)[0]) if get_origin(hint) is Annotated else hint
