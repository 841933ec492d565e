"""Sources of documents: one pass over documents, each with its split; among them the text files of a folder."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from lrpe.errors import LrpeError, require
from lrpe.lab.data.cache import digest, hash_files
from lrpe.lab.data.reading import read_lines
from lrpe.schema import Range

Every = Annotated[int, Range(3)]  # per this many documents, one is for validation, one for the test


class Document(NamedTuple):
    """One self-contained text: an article, a book, a module."""

    split: str  # train, validation or test
    text: str


@dataclass(frozen=True)
class Source:
    """Documents in a fixed order. ``identity`` is everything they depend on, JSON-friendly."""

    name: str
    identity: dict[str, Any]
    documents: Callable[[], Iterator[Document]]

    def training_texts(self) -> Iterator[str]:
        return (text for split, text in self.documents() if split == "train")


def join_sources(name: str, sources: Iterable[Source]) -> Source:
    """Return a source with the documents of each source in turn."""
    parts = tuple(sources)
    identity = {"joined": [part.identity for part in parts]}
    return Source(name, identity, lambda: chain.from_iterable(part.documents() for part in parts))


def choose_split(number: int, every: int) -> str:
    """Return the split of a document by its number: of ``every`` in a row, the last two are held out.

    >>> [choose_split(number, every=4) for number in range(5)]
    ['train', 'train', 'validation', 'test', 'train']
    """
    return {every - 2: "validation", every - 1: "test"}.get(number % every, "train")


SUFFIXES = (".txt", ".tokens", ".raw", ".jsonl")  # and each of them with .gz


def _is_text(file: Path) -> bool:
    """Return whether this is a text file, judged by its name; hidden files are not."""
    return file.is_file() and not file.name.startswith(".") and _suffix(file) in SUFFIXES


def _suffix(file: Path) -> str:
    """Return the suffix of a file, ignoring .gz."""
    return Path(file.name.removesuffix(".gz")).suffix


def read_documents(file: Path) -> Iterator[str]:
    """Yield the texts of a file: the field "text" of each JSON line, or else the whole file as one text."""
    if _suffix(file) != ".jsonl":
        yield "".join(read_lines(file))
        return
    for number, line in enumerate(read_lines(file), 1):
        yield _read_record(file, number, line) if line.strip() else ""


def _read_record(file: Path, number: int, line: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LrpeError(f"Each line of {str(file)!r} must be a JSON object; line {number} is not: {error}.") from error
    text = record.get("text") if isinstance(record, dict) else None
    if not isinstance(text, str):
        raise LrpeError(
            f"Each line of {str(file)!r} must be a JSON object with a string 'text'; line {number} has none."
        )
    require(_is_unicode(text), f"Line {number} of {str(file)!r} has an unpaired surrogate, which UTF-8 cannot encode.")
    return text


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


SPLIT_NAMES = {"train": "train", "valid": "validation", "validation": "validation", "dev": "validation", "test": "test"}


def folder_source(path: Path, name: str = "text", every: int = 20) -> Source:
    """Return the texts under a path; one in ``every`` is for validation and one for the test.

    Files named train, valid and test (or in folders of these names) form these splits. Otherwise whole files are held
    out, by a hash of their path; with fewer than three files, the last shares of each file are held out.

    Raises:
        LrpeError: ``every`` is below 3, or the path has no text files.
    """
    require(
        every >= 3,
        f"every must be at least 3: one document in `every` is for validation, one for the test; got every={every}.",
    )
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
    """Return the text files under a path, ordered by name."""
    files = [file for file in path.rglob("*") if _is_text(file)] if path.is_dir() else [path]
    require(
        all(_suffix(file) in SUFFIXES for file in files) and len(files) > 0,
        f"Text files end in {', '.join(SUFFIXES)}, plain or with .gz; there is none at {str(path)!r}.",
    )
    return sorted(files, key=lambda file: _relative_path(path, file))


def _relative_path(path: Path, file: Path) -> str:
    return file.relative_to(path).as_posix() if path.is_dir() else file.name


def split_by_name(path: Path, files: list[Path]) -> dict[Path, str]:
    """Return the split of each file by its path ("wiki.valid.tokens", "test/a.txt"), or {} if a split has none."""
    parts = {
        file: _relative_path(path, file).partition("/")[0].removeprefix("wiki.").partition(".")[0] for file in files
    }
    splits = {file: SPLIT_NAMES[part] for file, part in parts.items() if part in SPLIT_NAMES}
    return splits if len(set(splits.values())) == 3 else {}


def _split_by_hash(path: Path, files: list[Path], every: int) -> dict[Path, str]:
    """Order the files by a hash of their path; the first share is for validation, the next for the test."""
    order = sorted(files, key=lambda file: sha256(_relative_path(path, file).encode()).hexdigest())
    held = max(1, round(len(files) / every))
    return {file: ("validation", "test", "train")[min(number // held, 2)] for number, file in enumerate(order)}


def _read_files(files: list[Path], placed: dict[Path, str], every: int) -> Iterator[Document]:
    for file in files:
        if not placed:
            yield from _divide_file(file, every)
        elif file in placed:
            yield from (Document(placed[file], text) for text in read_documents(file))


def _divide_file(file: Path, every: int) -> Iterator[Document]:
    """Yield the documents of one file: of JSON lines, two in ``every`` are held out; of other text, its last lines."""
    if _suffix(file) == ".jsonl":
        for number, text in enumerate(read_documents(file)):
            yield Document(choose_split(number, every), text)
        return
    for text in read_documents(file):
        first, second = (_find_line_end(text, len(text) * (every - left) // every) for left in (2, 1))
        yield Document("train", text[:first])
        yield Document("validation", text[first:second])
        yield Document("test", text[second:])


def _find_line_end(text: str, position: int) -> int:
    """Return where the next line begins."""
    return text.find("\n", position) + 1 or len(text)
