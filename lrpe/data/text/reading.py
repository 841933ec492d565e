"""Texts out of files: plain, gzipped or JSON lines; what is broken is named with its file and line."""

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from lrpe.errors import LrpeError, require

SUFFIXES = (".txt", ".tokens", ".raw", ".jsonl")  # and each of them with .gz


def is_text(file: Path) -> bool:
    """Whether this is a file of text, by its name; hidden ones are none."""
    return file.is_file() and not file.name.startswith(".") and kind(file) in SUFFIXES


def kind(file: Path) -> str:
    """Its suffix, but for .gz."""
    return Path(file.name.removesuffix(".gz")).suffix


def read_documents(file: Path) -> Iterator[str]:
    """The texts of a file: of JSON lines the field "text" of each, else the file is one text."""
    if kind(file) != ".jsonl":
        yield "".join(read_lines(file))
        return
    for number, line in enumerate(read_lines(file), 1):
        yield read_record(file, number, line) if line.strip() else ""


def read_record(file: Path, number: int, line: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LrpeError(f"Each line of {str(file)!r} is a JSON object; line {number} is not: {error}.") from error
    text = record.get("text") if isinstance(record, dict) else None
    if not isinstance(text, str):
        raise LrpeError(f"Each line of {str(file)!r} is a JSON object with a string 'text'; line {number} has none.")
    require(is_unicode(text), f"Line {number} of {str(file)!r} has half a surrogate pair.")
    return text


def is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def read_lines(file: Path) -> Iterator[str]:
    """The lines of a file with their ends, which are newlines alone."""
    with open_bytes(file) as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise LrpeError(
                    f"Text is UTF-8; line {number} of {str(file)!r} is not, at its byte {error.start + 1} "
                    f"(0x{line[error.start]:02x}). `iconv -f latin1 -t utf-8` may help."
                ) from error


@contextmanager
def open_bytes(file: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unzipped if its name ends in .gz."""
    require(not file.is_dir(), f"A text is read from a file; {str(file)!r} is a folder.")
    try:
        with gzip.open(file) if file.name.endswith(".gz") else file.open("rb") as stream:
            yield cast(BinaryIO, stream)
    except (OSError, EOFError, zlib.error) as error:
        raise LrpeError(f"{str(file)!r} cannot be read to its end: {error}. Get it anew.") from error
