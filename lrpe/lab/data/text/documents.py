"""Documents out of files of text: each file is one, or each of its JSON lines."""

import json
from collections.abc import Iterator
from pathlib import Path

from lrpe.errors import LrpeError, require
from lrpe.lab.data.reading import read_lines

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
