"""Text datasets: documents, tokenised once into a stream of tokens in the cache, and cut into windows to predict."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from lrpe.errors import LrpeError, require, unknown_name
from lrpe.lab.data.cache import content_hash, digest, prepare
from lrpe.lab.data.dataset import Dataset, Draw, Entry, Sample
from lrpe.lab.data.jobs import progress
from lrpe.lab.data.text.sources import Document, Source
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


@dataclass(frozen=True)
class Stream:
    """The tokens of a split on disk.

    ``marks`` are (3, documents + 1): the tokens, words and bytes up to the end of each document, starting with 0. As in
    WikiText, whitespace separates words, and each end of a line counts as one.
    """

    file: Path
    dtype: str
    start: int  # the token before the first one: the end of a document
    marks: np.ndarray

    def __len__(self) -> int:
        """Return the number of tokens, each of which can be predicted from the tokens before it."""
        return int(self.marks[0, -1])

    def read(self, begin: int, end: int) -> np.ndarray:
        """Return the tokens begin ... end - 1 as int64; token -1 is ``start``."""
        tokens = self.tokens[max(begin, 0) : end].astype(np.int64)
        return np.concatenate([[self.start], tokens]) if begin < 0 else tokens

    @cached_property
    def tokens(self) -> np.ndarray:
        return np.memmap(self.file, self.dtype, mode="r")

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the memory map: another process maps the file itself."""
        return {name: value for name, value in self.__dict__.items() if name != "tokens"}

    def sequences(self, begin: int, end: int) -> np.ndarray:
        """Return the document number of each of these tokens, counted from 0 at ``begin``."""
        documents = np.searchsorted(self.marks[0], np.arange(begin, end), side="right")
        return documents - documents[:1]

    def words_and_bytes(self, begin: int, end: int) -> tuple[float, float]:
        """Return the words and bytes of some tokens: exact for whole documents, in proportion for parts of one."""
        words, size = (np.interp((begin, end), self.marks[0], marks) for marks in self.marks[1:])
        return float(words[1] - words[0]), float(size[1] - size[0])


def read_streams(folder: Path, tokenizer: Tokenizer) -> dict[str, Stream]:
    """Return the streams in a folder that have a document, train first."""
    marks = {
        split: np.load(folder / f"{split}.marks.npy")
        for split in ("train", "validation", "test")
        if (folder / f"{split}.marks.npy").is_file()
    }
    return {
        split: Stream(folder / f"{split}.tokens", tokenizer.dtype, tokenizer.eos, counts)
        for split, counts in marks.items()
        if counts[0, -1] > 0
    }


_SIZE = 1 << 20  # characters
_LINE = re.compile(r"\n(?=\S)")


class _Piece(NamedTuple):
    """A part of a document that is encoded separately."""

    split: str
    text: str
    last: bool


def _cut_documents(documents: Iterable[Document]) -> Iterator[_Piece]:
    for split, text in documents:
        parts = list(cut(text))
        yield from (_Piece(split, part, last=number == len(parts)) for number, part in enumerate(parts, 1))


def cut(text: str, size: int = _SIZE) -> Iterator[str]:
    """Yield parts of about ``size`` characters, cut before the last newline between two lines.

    GPT-2's pattern also splits there, so the parts have the same tokens as the whole text.

    >>> list(cut("one\\n\\ntwo\\nthree", size=3))
    ['one\\n', '\\ntwo', '\\nthree']
    """
    begin = 0
    while len(text) - begin > size and (newline := _LINE.search(text, begin + size)):
        yield text[begin : newline.start()]
        begin = newline.start()
    yield text[begin:]


def _group_pieces(pieces: Iterable[_Piece], size: int = 4 * _SIZE) -> Iterator[list[_Piece]]:
    """Yield lists of pieces, each list of about ``size`` characters."""
    held, characters = [], 0
    for piece in pieces:
        held.append(piece)
        characters += len(piece.text)
        if characters >= size:
            yield held
            held, characters = [], 0
    if held:
        yield held


def write_streams(folder: Path, source: Source, tokenizer: Tokenizer) -> None:
    """Write each split of a source as SPLIT.tokens and SPLIT.marks.npy, and its counts as facts.json."""
    writers: dict[str, _Writer] = {}
    documents = progress(source.documents(), f"{source.name}: tokens", unit="documents")
    with ExitStack() as files:
        for pieces in _group_pieces(_cut_documents(documents)):
            for piece, ids in zip(pieces, tokenizer.encode([piece.text for piece in pieces]), strict=True):
                if piece.split not in writers:
                    file = files.enter_context((folder / f"{piece.split}.tokens").open("wb"))
                    writers[piece.split] = _Writer(file, tokenizer)
                writers[piece.split].add(piece, ids)
    for split, writer in writers.items():
        np.save(folder / f"{split}.marks.npy", np.array(writer.marks, dtype=np.float64).T)
    facts = {split: writer.facts() for split, writer in writers.items()}
    (folder / "facts.json").write_text(json.dumps(facts, indent=2), encoding="utf-8")


@dataclass
class _Writer:
    """Writes one split."""

    file: BinaryIO
    tokenizer: Tokenizer
    marks: list[tuple[int, int, int]] = field(default_factory=lambda: [(0, 0, 0)])
    pending: tuple[int, int, int] = (0, 0, 0)  # the counts of the unfinished document
    ending: int = -1  # its last token, -1 if it has none
    empty: int = 0

    def add(self, piece: _Piece, ids: np.ndarray) -> None:
        if piece.last and not piece.text.strip() and self.pending[0] == 0:
            self.empty += 1
            return
        self.ending = int(ids[-1]) if len(ids) else self.ending
        ids = np.append(ids, self.tokenizer.eos) if piece.last and self.ending != self.tokenizer.eos else ids
        self.file.write(ids.astype(self.tokenizer.dtype).tobytes())
        lines = piece.text.count("\n") + (piece.last and not piece.text.endswith("\n"))
        size = (len(ids), len(piece.text.split()) + lines, len(piece.text.encode("utf-8")))
        self.pending = _add(self.pending, size)
        if piece.last:
            self.marks.append(_add(self.marks[-1], self.pending))
            self.pending, self.ending = (0, 0, 0), -1

    def facts(self) -> dict[str, Any]:
        tokens, words, size = self.marks[-1]
        documents = len(self.marks) - 1
        return {"documents": documents, "empty": self.empty, "tokens": tokens, "words": words, "bytes": size}


def _add(a: tuple[int, int, int], b: tuple[int, int, int]) -> tuple[int, int, int]:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


UNSCORED = -100  # the label of tokens that are not predicted; the default of torch's cross-entropy


@dataclass(frozen=True)
class Windows:
    """Window k predicts the tokens k · stride ... (k + 1) · stride - 1, the last of its ``length``.

    A stride of None means the length: no context is carried over from one window to the next. With a smaller stride,
    each window begins with length - stride tokens of context, which are not scored. Each token of the stream is scored
    once. ``packed`` windows number the documents, so that attention restarts with each; ``whole`` drops a shorter last
    window.
    """

    stream: Stream
    length: int = 512
    stride: int | None = None
    packed: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        require(
            1 <= self.step <= self.length,
            f"stride must be in 1 ... length, as a window scores its last `stride` tokens; got stride={self.stride}, "
            f"length={self.length}.",
        )

    @property
    def step(self) -> int:
        return self.length if self.stride is None else self.stride

    def __len__(self) -> int:
        return len(self.stream) // self.step if self.whole else -(-len(self.stream) // self.step)

    def sample(self, draw: Draw) -> Sample:
        """Return ``input_ids`` and, as ``labels``, the token that follows each of them.

        The input before the first token of a stream, and of each document if packed, is the end of a document.
        ``words`` and ``bytes`` count those of the scored tokens.
        """
        scored, end = draw.index * self.step, min((draw.index + 1) * self.step, len(self.stream))
        begin = max(0, (draw.index + 1) * self.step - self.length)
        ids = self.stream.read(begin - 1, end)
        labels = ids[1:].copy()
        labels[: scored - begin] = UNSCORED
        words, size = self.stream.words_and_bytes(scored, end)
        sample = {"input_ids": ids[:-1], "labels": labels, "words": words, "bytes": size}
        return sample | ({"sequences": self.stream.sequences(begin, end)} if self.packed else {})


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
