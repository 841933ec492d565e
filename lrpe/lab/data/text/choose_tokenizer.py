"""A tokeniser by its name; those that are learned, from the training documents of a source and once."""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from lrpe.errors import LrpeError
from lrpe.lab.data.cache import prepared
from lrpe.lab.data.progress import progress
from lrpe.lab.data.text.pieces import cut
from lrpe.lab.data.text.source import Source
from lrpe.lab.data.text.tokenizer import Tokenizer
from lrpe.lab.data.text.vocabularies import (
    bpe_size,
    byte_level,
    hub_tokenizer,
    learn_bpe,
    load_tokenizer,
    words,
)

VERSION = 1  # of how they are learned
BPE_CHARACTERS = 100_000_000  # BPE is learned from no more than this
BPE_PIECE = 1 << 14  # characters that are counted at a time


def choose_tokenizer(name: str | Tokenizer, source: Source) -> Tokenizer:
    """One of "bytes"; "words" or "bpe:SIZE", of the training documents; "hub:NAME", from this machine; or a path."""
    if isinstance(name, Tokenizer):
        return name
    if name == "bytes":
        return byte_level()
    if name == "words":
        return learned(name, source, words)
    if (size := bpe_size(name)) is not None:
        return learned(name, source, partial(learn_from_pieces, size=size))
    if name.startswith("hub:"):
        return hub_tokenizer(name[4:])
    if os.path.exists(name):
        return load_tokenizer(Path(name))
    raise LrpeError(
        f"A tokeniser is 'bytes', 'words', 'bpe:SIZE', 'hub:NAME' or the path of a tokenizer.json or of the folder "
        f"with GPT-2's two files; got {name!r}."
    )


def learned(name: str, source: Source, learn: Callable[[Iterable[str]], Tokenizer]) -> Tokenizer:
    """Learn a tokeniser of that name on the first call; load it on all others."""

    def build(folder: Path) -> None:
        texts = progress(source.training_texts(), f"{source.name}: vocabulary", unit="documents")
        learn(texts).core.save(str(folder / "tokenizer.json"))

    folder = prepared("tokenizer", {"version": VERSION, "name": name, "source": source.identity}, build)
    return load_tokenizer(folder)


def learn_from_pieces(texts: Iterable[str], size: int) -> Tokenizer:
    return learn_bpe(first_pieces(texts), size)


def first_pieces(texts: Iterable[str]) -> Iterator[str]:
    """The texts in pieces, until there are enough characters."""
    seen = 0
    for text in texts:
        yield from cut(text, BPE_PIECE)
        seen += len(text)
        if seen >= BPE_CHARACTERS:
            return
