"""Read files line by line, plain or gzipped; errors name the file and the line."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from lrpe.errors import LrpeError, require


def read_lines(file: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file with their ends; only a newline ends a line."""
    with _open_bytes(file) as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise LrpeError(
                    f"Text is UTF-8; line {number} of {str(file)!r} is not, at its byte {error.start + 1} "
                    f"(0x{line[error.start]:02x}). `iconv -f latin1 -t utf-8` may help."
                ) from error


@contextmanager
def _open_bytes(file: Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, unzipped if its name ends in .gz."""
    require(not file.is_dir(), f"Expected a file; {str(file)!r} is a folder.")
    try:
        with gzip.open(file) if file.name.endswith(".gz") else file.open("rb") as stream:
            yield cast(BinaryIO, stream)
    except (OSError, EOFError, zlib.error) as error:
        raise LrpeError(f"{str(file)!r} cannot be read to its end: {error}. Get it anew.") from error


def number_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number, counted from 1, without its end."""
    with _open_bytes(file) as stream:
        for number, line in enumerate(stream, 1):
            yield number, line.rstrip(b"\r\n")


def find_file(folder: Path, *names: str) -> Path:
    """Return the first of these files that the folder contains, plain or gzipped."""
    files = [folder / f"{name}{end}" for name in names for end in ("", ".gz")]
    for file in files:
        if file.exists():
            require(file.is_file(), f"Expected a file; {str(file)!r} is a folder.")
            return file
    raise LrpeError(f"{str(folder)!r} has no {' or '.join(names)}: is it the folder with the official layout?")
