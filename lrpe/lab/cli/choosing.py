"""What verbs that train have in common: an experiment from words, and lists of words."""

import os
from pathlib import Path
from typing import TypeVar

from lrpe.errors import require, unknown_name
from lrpe.lab.options import parse_word
from lrpe.schema import Seed

Word = TypeVar("Word", str, Path)


def words(text: str) -> list[str]:
    """a,b,c as a list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def seeds(text: str) -> list[int]:
    """0,1,2 as a list of numbers."""
    found = words(text)
    require(bool(found), f"--seeds are numbers, as 0,1,2; got {text!r}.")
    return [parse_word(word, Seed, "Each of --seeds") for word in found]


def pairs(text: str, what: str) -> dict[str, str]:
    """name=value,name=value as a dictionary; ``what`` says what they are."""
    found = {}
    for part in words(text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        require(bool(name and equals and value), f"{what}, with commas between them; got {part!r}.")
        found[name] = value
    return found


def paths(text: str) -> dict[str, str]:
    """NAME=PATH,NAME=PATH as a dictionary; a path that is not there is an error."""
    from lrpe.lab.data.catalog import CATALOG
    from lrpe.lab.data.dataset import HERE, HUB
    from lrpe.lab.experiments.known import COLUMNS

    found = pairs(text, "--data is NAME=PATH")
    for name, path in found.items():
        if name not in COLUMNS and name not in CATALOG:
            raise unknown_name("column or dataset", name, {*COLUMNS, *CATALOG})
        there = path in (HUB, HERE) or os.path.exists(path)
        require(there, f"The data of {name} is said to be at {path!r}, which does not exist.")
    return found


def one(names: list[Word], verb: str, what: str) -> Word:
    """Return the only one of these names."""
    require(len(names) == 1, f"lrpe {verb} takes one {what}; got {' '.join(map(str, names)) or 'none'}.")
    return names[0]
