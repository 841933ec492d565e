"""Lists, pairs and dotted keys, as they are typed on the command line."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lrpe.errors import LrpeError, require, unknown_name
from lrpe.lab.options import parse_word
from lrpe.schema import Seed

Word = TypeVar("Word", str, Path)


def words(text: str) -> list[str]:
    """Return the list written as a,b,c."""
    return [word.strip() for word in text.split(",") if word.strip()]


def seeds(text: str) -> list[int]:
    """Return the seeds written as 0,1,2."""
    found = words(text)
    require(bool(found), f"--seeds must be numbers, such as 0,1,2; got {text!r}.")
    return [parse_word(word, Seed, "Each of --seeds") for word in found]


def pairs(text: str, what: str) -> dict[str, str]:
    """Return what is written as name=value,name=value; ``what`` begins the error.

    By hand: jsonargparse reads dictionaries as JSON or YAML, whose braces and quotes a shell would take apart.
    """
    found = {}
    for part in words(text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        require(bool(name and equals and value), f"{what}, with commas between them; got {part!r}.")
        found[name] = value
    return found


def paths(text: str) -> dict[str, str]:
    """Return the paths written as NAME=PATH,NAME=PATH; refuse a path that does not exist."""
    from lrpe.lab.data.catalog import CATALOG
    from lrpe.lab.data.dataset import HERE, HUB
    from lrpe.lab.experiments.known import COLUMNS

    found = pairs(text, "--data is NAME=PATH")
    for name, path in found.items():
        if name not in COLUMNS and name not in CATALOG:
            raise unknown_name("column or dataset", name, {*COLUMNS, *CATALOG})
        there = path in (HUB, HERE) or os.path.exists(path)
        require(there, f"--data says that {name} is at {path!r}, which does not exist.")
    return found


def one(names: list[Word], verb: str, what: str) -> Word:
    """Return the only name; refuse none or several."""
    require(len(names) == 1, f"lrpe {verb} takes one {what}; got {' '.join(map(str, names)) or 'none'}.")
    return names[0]


def take_dotted(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Separate the dotted keys and their values from the other words; the verb says what they change.

    >>> take_dotted(["train", "books", "--model.norm", "rms", "--data.path=x.y", "--out", "a.b"])
    (['train', 'books', '--out', 'a.b'], {'model.norm': 'rms', 'data.path': 'x.y'})
    """
    rest, found, words = [], {}, iter(argv)
    for word in words:
        key, equals, value = word.partition("=")
        if not key.startswith("--") or "." not in key:
            rest.append(word)
            continue
        given = value if equals else next(words, None)
        if given is None or (not equals and given.startswith("--")):
            raise LrpeError(f"{key} needs a value: {key} VALUE; got none.")
        found[key.removeprefix("--")] = given
    return rest, found


def read_dotted(keys: Mapping[str, str]) -> dict[str, Any]:
    """Return dotted keys and the YAML text of their values as nested dictionaries; ``experiment.`` may be left out.

    >>> read_dotted({"training.seed": "1", "training.precision": "float32", "experiment.scored": "2"})
    {'training': {'seed': 1, 'precision': 'float32'}, 'scored': 2}
    """
    from lrpe.lab.experiments.config_file import merge  # which imports torch: a verb without such keys needs none

    found: dict[str, Any] = {}
    for key, text in keys.items():
        value = _read_value(key, text)
        for part in reversed(key.removeprefix("experiment.").split(".")):
            value = {part: value}
        found = merge(found, value)
    return found


def _read_value(key: str, text: str) -> Any:
    from lrpe.serialization import parse_yaml

    try:
        return parse_yaml(text)
    except LrpeError as error:
        raise LrpeError(f"The value of --{key[:80]} cannot be read: {error}.") from error
