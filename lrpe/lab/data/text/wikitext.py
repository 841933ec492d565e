"""WikiText-103 and WikiText-2: Wikipedia's good and featured articles, split into words."""

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from lrpe.errors import require
from lrpe.lab.data.cache import hash_files
from lrpe.lab.data.dataset import Entry
from lrpe.lab.data.reading import read_lines
from lrpe.lab.data.text.folder import find_files, split_by_name
from lrpe.lab.data.text.hub import hub_source
from lrpe.lab.data.text.source import Document, Source
from lrpe.lab.data.text.text_dataset import TextDataset, text_dataset, text_entry
from lrpe.lab.data.text.tokenizer import Tokenizer
from lrpe.schema import Count

_LAYOUT = "wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens (or .txt, .raw; each may be gzipped)"


def wikitext_source(path: Path, name: str) -> Source:
    """Return the articles of the three files, in a folder or in its only subfolder such as wikitext-103/.

    Raises:
        LrpeError: the path is not a folder with one file per split.
    """
    require(path.is_dir(), f"The path of {name} must be a folder with {_LAYOUT}; {str(path)!r} is a file.")
    inner = [folder for folder in path.iterdir() if folder.is_dir() and folder.name.startswith("wikitext")]
    folder = inner[0] if len(inner) == 1 else path
    files = split_by_name(folder, find_files(folder))
    require(len(files) == 3, f"{name} needs {_LAYOUT}; {str(folder)!r} has {_name_files(files)}.")
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


def _load(
    name: str, path: Path, tokenizer: str | Tokenizer = "words", length: Count = 512, packed: bool = False
) -> TextDataset:
    return text_dataset(wikitext_source(path, name), tokenizer, length, packed)


def _load_from_hub(
    name: str, repository: str, tokenizer: str | Tokenizer = "words", length: Count = 512, packed: bool = False
) -> TextDataset:
    """Load it from the hub, where each row is a line."""
    rows = hub_source(repository, name)
    source = Source(name, {"articles": rows.identity}, lambda: _gather_articles(rows.documents()))
    return text_dataset(source, tokenizer, length, packed)


def _entry(name: str, size: str, repository: str) -> Entry:
    return text_entry(
        name=name,
        summary=f"Wikipedia's good and featured articles, {size}; perplexity per word.",
        licence="CC BY-SA 3.0",
        source="https://huggingface.co/datasets/Salesforce/wikitext",
        layout=_LAYOUT,
        load=partial(_load, name),
        hub=partial(_load_from_hub, name, repository),
    )


ENTRIES = (
    _entry("wikitext103", "103 million words", "Salesforce/wikitext:wikitext-103-v1"),
    _entry("wikitext2", "2 million words", "Salesforce/wikitext:wikitext-2-v1"),
)
