"""Text datasets: any file or folder, books, Wikipedia with books, and the standard library."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from lrpe.errors import require
from lrpe.lab.data.standard_library import fingerprint, read_modules
from lrpe.lab.data.text.folder import SUFFIXES, folder_source
from lrpe.lab.data.text.hub import load as load_hub
from lrpe.lab.data.text.source import Document, Every, Source, join_sources
from lrpe.lab.data.text.text_dataset import TextDataset, text_dataset, text_entry
from lrpe.lab.data.text.tokenizer import Tokenizer
from lrpe.schema import Count

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
