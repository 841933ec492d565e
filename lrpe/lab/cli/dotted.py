"""Keys with dots, such as --training.optimization.rate 1e-3: what they change is up to the verb."""

from collections.abc import Sequence

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
