"""A source tokenised once: every split a file of ids, with what is needed to count words and bytes."""

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lrpe.lab.data.progress import progress
from lrpe.lab.data.text.pieces import Piece, cut_documents, group
from lrpe.lab.data.text.source import Source
from lrpe.lab.data.text.tokenizer import Tokenizer


def write_streams(folder: Path, source: Source, tokenizer: Tokenizer) -> None:
    """Every split of a source as SPLIT.tokens and SPLIT.marks.npy, and facts.json."""
    writers: dict[str, Writer] = {}
    documents = progress(source.documents(), f"{source.name}: tokens", unit="documents")
    with ExitStack() as files:
        for pieces in group(cut_documents(documents)):
            for piece, ids in zip(pieces, tokenizer.encode([piece.text for piece in pieces]), strict=True):
                if piece.split not in writers:
                    file = files.enter_context((folder / f"{piece.split}.tokens").open("wb"))
                    writers[piece.split] = Writer(file, tokenizer)
                writers[piece.split].add(piece, ids)
    for split, writer in writers.items():
        np.save(folder / f"{split}.marks.npy", np.array(writer.marks, dtype=np.float64).T)
    facts = {split: writer.facts() for split, writer in writers.items()}
    (folder / "facts.json").write_text(json.dumps(facts, indent=2), encoding="utf-8")


@dataclass
class Writer:
    """A split that is being written."""

    file: BinaryIO
    tokenizer: Tokenizer
    marks: list[tuple[int, int, int]] = field(default_factory=lambda: [(0, 0, 0)])
    pending: tuple[int, int, int] = (0, 0, 0)  # of the document that has not ended yet
    ending: int = -1  # its last token, -1 if it has none
    empty: int = 0

    def add(self, piece: Piece, ids: np.ndarray) -> None:
        if piece.last and not piece.text.strip() and self.pending[0] == 0:
            self.empty += 1
            return
        self.ending = int(ids[-1]) if len(ids) else self.ending
        ids = np.append(ids, self.tokenizer.eos) if piece.last and self.ending != self.tokenizer.eos else ids
        self.file.write(ids.astype(self.tokenizer.dtype).tobytes())
        lines = piece.text.count("\n") + (piece.last and not piece.text.endswith("\n"))
        size = (len(ids), len(piece.text.split()) + lines, len(piece.text.encode("utf-8")))
        self.pending = plus(self.pending, size)
        if piece.last:
            self.marks.append(plus(self.marks[-1], self.pending))
            self.pending, self.ending = (0, 0, 0), -1

    def facts(self) -> dict[str, Any]:
        tokens, words, size = self.marks[-1]
        documents = len(self.marks) - 1
        return {"documents": documents, "empty": self.empty, "tokens": tokens, "words": words, "bytes": size}


def plus(a: tuple[int, int, int], b: tuple[int, int, int]) -> tuple[int, int, int]:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]
