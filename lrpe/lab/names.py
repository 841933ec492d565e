"""Names that become parts of a path: checked where they are read, so that nothing is written outside a folder."""

import re

from lrpe.errors import require

LONGEST = 100  # characters: a file's name has at most 255 bytes, and others are put beside this one


def check_name(name: str, what: str) -> None:
    """Raise ``LrpeError`` unless the name is a plain part of a path: no separator, no leading dot, not too long."""
    plain = re.fullmatch(r"[\w*+=,@~-][\w*+=,@~. -]*", name) is not None
    require(
        plain and len(name) <= LONGEST,
        f"{what} names a folder, so it has letters, digits and - _ . + * = , alone, {LONGEST} at most, and does not "
        f"begin with a dot; got {name[: LONGEST + 20]!r}.",
    )
