"""Build a dataset for language models from a source of documents, a tokeniser and a length."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lrpe.errors import LrpeError, require, unknown_name
from lrpe.lab.data.cache import content_hash, digest, prepare
from lrpe.lab.data.dataset import Dataset, Entry, Sample
from lrpe.lab.data.jobs import progress
from lrpe.lab.data.text.sources import Source
from lrpe.lab.data.text.stream import Windows, cut, read_streams, write_streams
from lrpe.lab.data.text.tokenizer import (
    Tokenizer,
    bpe_size,
    byte_level,
    hub_tokenizer,
    learn_bpe,
    learn_words,
    load_tokenizer,
)
from lrpe.schema import Count
from lrpe.serialization import read_json

_STREAM_VERSION = 1  # of the files that write_streams writes

text_entry = partial(Entry, kind="text")


@dataclass(frozen=True, kw_only=True)
class TextDataset(Dataset):
    """A dataset whose splits are ``Windows`` of its tokenised documents."""

    splits: Mapping[str, Windows]
    tokenizer: Tokenizer

    def windows(self, split: str) -> Windows:
        if split not in self.splits:
            raise unknown_name(f"split of {self.name}", split, self.splits)
        return self.splits[split]


def text_dataset(
    source: Source, tokenizer: str | Tokenizer = "bpe:8192", length: Count = 512, packed: bool = False
) -> TextDataset:
    """Tokenise a source on the first call, and cut it into windows of ``length`` tokens.

    Args:
        source: the documents.
        tokenizer: a tokeniser, or its name: "bytes", "words", "bpe:8192", a path, "hub:NAME".
        length: tokens per window.
        packed: whether attention restarts with each document.

    Raises:
        LrpeError: the tokeniser is unknown, or no training document has text.
    """
    chosen = _choose_tokenizer(tokenizer, source)
    recipe = {"version": _STREAM_VERSION, "source": source.identity, "tokenizer": chosen.fingerprint()}
    folder = prepare(source.name, recipe, partial(write_streams, source=source, tokenizer=chosen))
    streams = read_streams(folder, chosen)
    require("train" in streams, f"{source.name} has no training document with text.")
    splits = {name: Windows(stream, length, packed=packed) for name, stream in streams.items()}
    facts = {
        "splits": read_json(folder / "facts.json", dict),
        "vocabulary": len(chosen),
        "tokenizer": chosen.fingerprint(),
        "sources": digest(source.identity),
        "content": content_hash(folder),
    }
    return TextDataset(name=source.name, splits=splits, facts=facts, show=partial(show, chosen), tokenizer=chosen)


def show(tokenizer: Tokenizer, sample: Sample) -> str:
    return repr(tokenizer.decode(sample["input_ids"]))


_TOKENIZER_VERSION = 1  # of how tokenisers are learned
_BPE_CHARACTERS = 100_000_000  # BPE is learned from at most this many, plus the end of the last document
_BPE_PIECE = 1 << 14  # characters counted at a time


def _choose_tokenizer(name: str | Tokenizer, source: Source) -> Tokenizer:
    """Return the tokeniser of this name for a source.

    "bytes"; "words" or "bpe:SIZE", learned from the training documents; "hub:NAME", from this machine; or a path.
    """
    if isinstance(name, Tokenizer):
        return name
    if name == "bytes":
        return byte_level()
    if name == "words":
        return _learn_once(name, source, learn_words)
    if (size := bpe_size(name)) is not None:
        return _learn_once(name, source, partial(_learn_from_pieces, size=size))
    if name.startswith("hub:"):
        return hub_tokenizer(name[4:])
    if os.path.exists(name):
        return load_tokenizer(Path(name))
    raise LrpeError(
        f"tokenizer must be 'bytes', 'words', 'bpe:SIZE', 'hub:NAME' or the path of a tokenizer.json or of a folder "
        f"with GPT-2's two files; got tokenizer={name!r}."
    )


def _learn_once(name: str, source: Source, learn: Callable[[Iterable[str]], Tokenizer]) -> Tokenizer:
    """Learn the tokeniser of this name on the first call; load it afterwards."""

    def build(folder: Path) -> None:
        texts = progress(source.training_texts(), f"{source.name}: vocabulary", unit="documents")
        learn(texts).core.save(str(folder / "tokenizer.json"))

    folder = prepare("tokenizer", {"version": _TOKENIZER_VERSION, "name": name, "source": source.identity}, build)
    return load_tokenizer(folder)


def _learn_from_pieces(texts: Iterable[str], size: int) -> Tokenizer:
    return learn_bpe(_first_pieces(texts), size)


def _first_pieces(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts in pieces until there are ``_BPE_CHARACTERS`` characters."""
    seen = 0
    for text in texts:
        yield from cut(text, _BPE_PIECE)
        seen += len(text)
        if seen >= _BPE_CHARACTERS:
            return
