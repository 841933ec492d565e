"""What verbs that train have in common: an experiment from words, and lists of words."""

from pathlib import Path

from lrpe.errors import require, unknown_name


def words(text: str) -> list[str]:
    """a,b,c as a list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str, what: str) -> list[int]:
    found = words(text)
    require(bool(found) and all(word.isdigit() for word in found), f"{what} are numbers, as 0,1,2; got {text!r}.")
    return [int(word) for word in found]


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
    from lrpe.data.catalog import CATALOG
    from lrpe.experiments.columns.named import COLUMNS
    from lrpe.experiments.experiment import HERE, HUB

    found = pairs(text, "Data are NAME=PATH")
    for name, path in found.items():
        if name not in COLUMNS and name not in CATALOG:
            raise unknown_name("column or dataset", name, {*COLUMNS, *CATALOG})
        there = path in (HUB, HERE) or Path(path).exists()
        require(there, f"The data of {name} lie at {path!r}, which does not exist.")
    return found


def one(names: list[str], verb: str, what: str) -> str:
    require(len(names) == 1, f"lrpe {verb} takes one {what}; got {' '.join(names) or 'none'}.")
    return names[0]
