"""Checks names that become parts of a path, so that nothing is written outside its folder."""

import re

from lrpe.errors import require

LONGEST = 100  # characters; a file name has at most 255 bytes, and prefixes and suffixes are added


def check_name(name: str, what: str) -> None:
    """Raise ``LrpeError`` if the name has a separator or a leading dot, or is too long."""
    plain = re.fullmatch(r"[\w*+=,@~-][\w*+=,@~. -]*", name) is not None
    require(
        plain and len(name) <= LONGEST,
        f"{what} names a folder, so it must consist of at most {LONGEST} letters, digits and - _ . + * = , and not "
        f"start with a dot; got {name[: LONGEST + 20]!r}.",
    )
