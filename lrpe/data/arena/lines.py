"""Lines of a file, plain or gzipped, as bytes."""

from collections.abc import Iterator
from pathlib import Path

from lrpe.data.text.reading import open_bytes
from lrpe.errors import LrpeError, require


def lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Each line with its number, from 1 on, without its end."""
    with open_bytes(file) as stream:
        for number, line in enumerate(stream, 1):
            yield number, line.rstrip(b"\r\n")


def found(folder: Path, *names: str) -> Path:
    """The first of these files that the folder has, itself or gzipped."""
    files = [folder / f"{name}{end}" for name in names for end in ("", ".gz")]
    for file in files:
        if file.exists():
            require(file.is_file(), f"{str(file)!r} is read as a file; it is a folder.")
            return file
    raise LrpeError(f"{str(folder)!r} has no {' or '.join(names)}: is it the folder with the official layout?")
