"""The tokens of a split, one document after the other, in a file that is read where it is asked for."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lrpe.lab.data.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Stream:
    """``marks`` are (3, documents + 1): tokens, words and bytes up to the end of each document, from 0 on.

    A word is what stands between spaces, or the end of a line, as WikiText counts them.
    """

    file: Path
    dtype: str
    start: int  # the token that stands before the first one: the end of a document before it
    marks: np.ndarray

    def __len__(self) -> int:
        """Tokens, each of which can be predicted from those before it."""
        return int(self.marks[0, -1])

    def read(self, begin: int, end: int) -> np.ndarray:
        """The tokens begin ... end - 1, int64; number -1 is ``start``."""
        found = self.tokens[max(begin, 0) : end].astype(np.int64)
        return np.concatenate([[self.start], found]) if begin < 0 else found

    @cached_property
    def tokens(self) -> np.ndarray:
        return np.memmap(self.file, self.dtype, mode="r")

    def __getstate__(self) -> dict[str, Any]:
        """Another process maps the file anew."""
        return {name: value for name, value in self.__dict__.items() if name != "tokens"}

    def sequences(self, begin: int, end: int) -> np.ndarray:
        """Which document each of these tokens belongs to, counted from 0 at ``begin``."""
        found = np.searchsorted(self.marks[0], np.arange(begin, end), side="right")
        return found - found[:1]

    def words_and_bytes(self, begin: int, end: int) -> tuple[float, float]:
        """Those of some tokens: of whole documents exactly, of a part of one as its tokens are to all of them."""
        words, size = (np.interp((begin, end), self.marks[0], marks) for marks in self.marks[1:])
        return float(words[1] - words[0]), float(size[1] - size[0])


def read_streams(folder: Path, tokenizer: Tokenizer) -> dict[str, Stream]:
    """The splits that were written and have a document, train first."""
    marks = {
        split: np.load(folder / f"{split}.marks.npy")
        for split in ("train", "validation", "test")
        if (folder / f"{split}.marks.npy").is_file()
    }
    return {
        split: Stream(folder / f"{split}.tokens", tokenizer.dtype, tokenizer.eos, found)
        for split, found in marks.items()
        if found[0, -1] > 0
    }
