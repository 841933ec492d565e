"""Documents of any file or folder of text."""

import json
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

from lrpe.errors import LrpeError, require
from lrpe.lab.data.cache import digest, hash_files
from lrpe.lab.data.reading import read_lines
from lrpe.lab.data.text.source import Document, Source, choose_split

SUFFIXES = (".txt", ".tokens", ".raw", ".jsonl")  # and each of them with .gz


def _is_text(file: Path) -> bool:
    """Whether this is a file of text, by its name; hidden ones are none."""
    return file.is_file() and not file.name.startswith(".") and _suffix(file) in SUFFIXES


def _suffix(file: Path) -> str:
    """Its suffix, but for .gz."""
    return Path(file.name.removesuffix(".gz")).suffix


def read_documents(file: Path) -> Iterator[str]:
    """The texts of a file: of JSON lines the field "text" of each, else the file is one text."""
    if _suffix(file) != ".jsonl":
        yield "".join(read_lines(file))
        return
    for number, line in enumerate(read_lines(file), 1):
        yield _read_record(file, number, line) if line.strip() else ""


def _read_record(file: Path, number: int, line: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LrpeError(f"Each line of {str(file)!r} is a JSON object; line {number} is not: {error}.") from error
    text = record.get("text") if isinstance(record, dict) else None
    if not isinstance(text, str):
        raise LrpeError(f"Each line of {str(file)!r} is a JSON object with a string 'text'; line {number} has none.")
    require(_is_unicode(text), f"Line {number} of {str(file)!r} has half a surrogate pair.")
    return text


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


SPLIT_NAMES = {"train": "train", "valid": "validation", "validation": "validation", "dev": "validation", "test": "test"}


def folder_source(path: Path, name: str = "text", every: int = 20) -> Source:
    """The texts under a path; one in ``every`` is for validation and one for the test.

    Files that are named train, valid and test (or lie in folders of these names) are split as they say. Else whole
    files are held out, by a hash of their path; and of fewer than three files the last shares of each.
    """
    require(every >= 3, f"One document in `every` is for validation and one for the test, so every ≥ 3; got {every}.")
    files = find_files(path)
    named = split_by_name(path, files)
    placed = named or (_split_by_hash(path, files, every) if len(files) >= 3 else {})
    identity = {
        "names": digest([_relative_path(path, file) for file in files]),
        "contents": hash_files(*files),
        "every": None if named else every,
    }
    return Source(name, identity, partial(_read_files, files, placed, every))


def find_files(path: Path) -> list[Path]:
    """The files of text under a path, in the order of their names."""
    found = [file for file in path.rglob("*") if _is_text(file)] if path.is_dir() else [path]
    require(
        all(_suffix(file) in SUFFIXES for file in found) and len(found) > 0,
        f"Text is in files {', '.join(SUFFIXES)}, plain or with .gz; there is none at {str(path)!r}.",
    )
    return sorted(found, key=lambda file: _relative_path(path, file))


def _relative_path(path: Path, file: Path) -> str:
    return file.relative_to(path).as_posix() if path.is_dir() else file.name


def split_by_name(path: Path, files: list[Path]) -> dict[Path, str]:
    """The split of each file by the first part of its path, "wiki.valid.tokens" or "test/a.txt", if none is empty."""
    parts = {
        file: _relative_path(path, file).partition("/")[0].removeprefix("wiki.").partition(".")[0] for file in files
    }
    found = {file: SPLIT_NAMES[part] for file, part in parts.items() if part in SPLIT_NAMES}
    return found if len(set(found.values())) == 3 else {}


def _split_by_hash(path: Path, files: list[Path], every: int) -> dict[Path, str]:
    """Of the files in the order of their hashes: the first share for validation, the next for the test."""
    order = sorted(files, key=lambda file: sha256(_relative_path(path, file).encode()).hexdigest())
    held = max(1, round(len(files) / every))
    return {file: ("validation", "test", "train")[min(place // held, 2)] for place, file in enumerate(order)}


def _read_files(files: list[Path], placed: dict[Path, str], every: int) -> Iterator[Document]:
    for file in files:
        if not placed:
            yield from _divide_file(file, every)
        elif file in placed:
            yield from (Document(placed[file], text) for text in read_documents(file))


def _divide_file(file: Path, every: int) -> Iterator[Document]:
    """The documents of one file: of many every so many-th is held out, of one the last lines."""
    if _suffix(file) == ".jsonl":
        for number, text in enumerate(read_documents(file)):
            yield Document(choose_split(number, every), text)
        return
    for text in read_documents(file):
        first, second = (_find_line_end(text, len(text) * (every - left) // every) for left in (2, 1))
        yield Document("train", text[:first])
        yield Document("validation", text[first:second])
        yield Document("test", text[second:])


def _find_line_end(text: str, place: int) -> int:
    """Where the next line begins."""
    return text.find("\n", place) + 1 or len(text)
