"""Text datasets: WikiText, any file or folder, books, Wikipedia with books, and the standard library."""

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from lrpe.errors import require
from lrpe.lab.data.cache import hash_files
from lrpe.lab.data.dataset import Entry
from lrpe.lab.data.reading import read_lines
from lrpe.lab.data.standard_library import fingerprint, read_modules
from lrpe.lab.data.text.hub import hub_source
from lrpe.lab.data.text.hub import load as load_hub
from lrpe.lab.data.text.sources import (
    SUFFIXES,
    Document,
    Every,
    Source,
    find_files,
    folder_source,
    join_sources,
    split_by_name,
)
from lrpe.lab.data.text.text_dataset import TextDataset, text_dataset, text_entry
from lrpe.lab.data.text.tokenizer import Tokenizer
from lrpe.schema import Count

_WIKITEXT_LAYOUT = "wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens (or .txt, .raw; each may be gzipped)"


def wikitext_source(path: Path, name: str) -> Source:
    """Return the articles of the three files, in a folder or in its only subfolder such as wikitext-103/.

    Raises:
        LrpeError: the path is not a folder with one file per split.
    """
    require(path.is_dir(), f"The path of {name} must be a folder with {_WIKITEXT_LAYOUT}; {str(path)!r} is a file.")
    inner = [folder for folder in path.iterdir() if folder.is_dir() and folder.name.startswith("wikitext")]
    folder = inner[0] if len(inner) == 1 else path
    files = split_by_name(folder, find_files(folder))
    require(len(files) == 3, f"{name} needs {_WIKITEXT_LAYOUT}; {str(folder)!r} has {_name_files(files)}.")
    return Source(name, {"articles": {files[file]: hash_files(file) for file in files}}, partial(_read_articles, files))


def _name_files(files: dict[Path, str]) -> str:
    return ", ".join(file.name for file in files) or "too few of them"


def _read_articles(files: dict[Path, str]) -> Iterator[Document]:
    return _gather_articles(Document(split, line) for file, split in files.items() for line in read_lines(file))


def _gather_articles(lines: Iterator[Document]) -> Iterator[Document]:
    """Yield the articles of lines that are ordered by split; an empty line, as on the hub, gets its newline."""
    for split, group in groupby(lines, key=attrgetter("split")):
        yield from (Document(split, article) for article in split_articles(text or " \n" for _, text in group))


def split_articles(lines: Iterator[str]) -> Iterator[str]:
    """Yield the articles, each beginning with its title; every line is in one of them.

    >>> list(
    ...     split_articles(iter([" = A =\\n", " \\n", " a\\n", " = = B = =\\n", " \\n", " = C =\\n", " \\n", " c\\n"]))
    ... )
    [' = A =\\n \\n a\\n = = B = =\\n \\n', ' = C =\\n \\n c\\n']
    """
    article: list[str] = []
    for line in lines:
        article.append(line)
        if _ends_with_title(article) and any(before.strip() for before in article[:-2]):
            yield "".join(article[:-2])
            article = article[-2:]
    if article:
        yield "".join(article)


def _ends_with_title(lines: list[str]) -> bool:
    """Return whether the lines end with " = Title = " between empty lines; " = = Heading = = " is not a title."""
    if len(lines) < 3 or lines[-3].strip() or lines[-1].strip():
        return False
    words = lines[-2].split()
    return len(words) >= 3 and words[0] == words[-1] == "=" and words[1] != "="


def _load_wikitext(
    name: str, path: Path, tokenizer: str | Tokenizer = "words", length: Count = 512, packed: bool = False
) -> TextDataset:
    return text_dataset(wikitext_source(path, name), tokenizer, length, packed)


def _load_wikitext_from_hub(
    name: str, repository: str, tokenizer: str | Tokenizer = "words", length: Count = 512, packed: bool = False
) -> TextDataset:
    """Load it from the hub, where each row is a line."""
    rows = hub_source(repository, name)
    source = Source(name, {"articles": rows.identity}, lambda: _gather_articles(rows.documents()))
    return text_dataset(source, tokenizer, length, packed)


def _wikitext_entry(name: str, size: str, repository: str) -> Entry:
    return text_entry(
        name=name,
        summary=f"Wikipedia's good and featured articles, {size}.",
        licence="CC BY-SA 3.0",
        source="https://huggingface.co/datasets/Salesforce/wikitext",
        layout=_WIKITEXT_LAYOUT,
        load=partial(_load_wikitext, name),
        hub=partial(_load_wikitext_from_hub, name, repository),
    )


_FILES = f"files {', '.join(SUFFIXES)} (JSON lines have a field 'text'), each plain or with .gz"
_PARTS = ("wikipedia", "books")
_WIKIPEDIA, _PG19 = "wikimedia/wikipedia:20231101.en", "emozilla/pg19"  # repositories on the hub


def _load_folder(
    name: str,
    path: Path,
    tokenizer: str | Tokenizer = "bpe:8192",
    every: Every = 20,
    length: Count = 512,
    packed: bool = False,
) -> TextDataset:
    return text_dataset(folder_source(path, name, every), tokenizer, length, packed)


def _load_wikibook(
    path: Path,
    tokenizer: str | Tokenizer = "bpe:50265",
    every: Every = 1000,
    length: Count = 512,
    packed: bool = False,
) -> TextDataset:
    """Load Wikipedia and books, by default with as many entries as RoBERTa; its own are "hub:roberta-base"."""
    missing = [part for part in _PARTS if not (path / part).is_dir()]
    require(
        not missing,
        f"The path of wikibook needs folders {' and '.join(_PARTS)}; {str(path)!r} has no {', '.join(missing)}.",
    )
    sources = [folder_source(path / part, part, every) for part in _PARTS]
    return text_dataset(join_sources("wikibook", sources), tokenizer, length, packed)


def _library_source() -> Source:
    """Return the modules of the running Python's standard library as a source."""
    return Source("stdlib", {"library": fingerprint()}, _read_library)


def _read_library() -> Iterator[Document]:
    return (Document(module.split, module.text) for module in read_modules())


def load_library(tokenizer: str | Tokenizer = "bytes", length: Count = 512, packed: bool = False) -> TextDataset:
    return text_dataset(_library_source(), tokenizer, length, packed)


ENTRIES = (
    _wikitext_entry("wikitext103", "103 million words", "Salesforce/wikitext:wikitext-103-v1"),
    _wikitext_entry("wikitext2", "2 million words", "Salesforce/wikitext:wikitext-2-v1"),
    text_entry(
        name="text",
        summary="Any file or folder of text; split by file names (train, valid, test) or by a hash of the paths.",
        licence="its own",
        source="anywhere",
        layout=_FILES,
        load=partial(_load_folder, "text"),
    ),
    text_entry(
        name="books",
        summary="A folder of books; whole books are held out.",
        licence="that of each book; Project Gutenberg's are in the public domain",
        source="https://www.gutenberg.org; on the hub PG-19, 28,752 of its books from before 1919",
        layout=f"one book per file: {_FILES}",
        load=partial(_load_folder, "books"),
        hub=partial(load_hub, "books", _PG19),
    ),
    text_entry(
        name="wikibook",
        summary="Wikipedia and books, for masked language models: RoBERTa's 50,265 entries.",
        licence="Wikipedia: CC BY-SA 4.0; books: that of each book",
        source="https://dumps.wikimedia.org through wikiextractor --json, and `books`; or both from the hub",
        layout=f"wikipedia/ and books/, each with {_FILES}",
        load=_load_wikibook,
        hub=partial(load_hub, "wikibook", (_WIKIPEDIA, _PG19), tokenizer="bpe:50265"),
    ),
    text_entry(
        name="stdlib",
        summary="The sources of the running Python's standard library; no download.",
        licence="PSF-2.0",
        source="this machine",
        layout=None,
        load=load_library,
    ),
)
