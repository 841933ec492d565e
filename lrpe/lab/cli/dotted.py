"""Keys with dots, such as --training.optimization.rate 1e-3: what they change is up to the verb."""

from collections.abc import Mapping, Sequence
from typing import Any

from lrpe.errors import LrpeError


def take_dotted(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The other words, and the dotted keys with their values.

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
            raise LrpeError(f"{key} has a value: {key} VALUE; got none.")
        found[key.removeprefix("--")] = given
    return rest, found


def read_dotted(keys: Mapping[str, str]) -> dict[str, Any]:
    """Return dotted keys and the YAML text of their values as nested dictionaries; ``experiment.`` may be left out.

    >>> read_dotted({"training.seed": "1", "training.precision": "float32", "experiment.scored": "2"})
    {'training': {'seed': 1, 'precision': 'float32'}, 'scored': 2}
    """
    from lrpe.lab.experiments.written import merge  # which imports torch: a verb without such keys needs none

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
