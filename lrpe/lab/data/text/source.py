"""Sources of documents: one pass over the documents, each with its split."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, NamedTuple

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
