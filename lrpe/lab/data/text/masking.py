"""Tokens hidden as RoBERTa hides them: some of each window, drawn anew in every epoch."""

from dataclasses import dataclass

import numpy as np

from lrpe.errors import require
from lrpe.lab.data.dataset import Draw, Sample
from lrpe.lab.data.text.tokenizer import Tokenizer
from lrpe.lab.data.text.windows import UNSCORED, Windows

_MASKED, _REPLACED = 0.8, 0.1  # of the tokens to be predicted; the rest is left as it is


@dataclass(frozen=True)
class _Masking:
    """Which tokens may be hidden (no special ones), and by what; ``spaces`` tell words apart that are hidden whole."""

    rate: float
    mask: int
    ordinary: np.ndarray  # the ids that stand for text
    hidable: np.ndarray  # (vocabulary,) bool
    spaces: np.ndarray | None = None  # (2, vocabulary) bool: its text begins, ends with a space

    def hide(self, ids: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The ids with some of them hidden, and the labels: the true ids of those, UNSCORED elsewhere."""
        chosen = self.choose(ids, generator)
        labels = np.where(chosen, ids, UNSCORED)
        fate = generator.random(len(ids))
        other = generator.choice(self.ordinary, len(ids))
        hidden = np.where(fate < _MASKED, self.mask, np.where(fate < _MASKED + _REPLACED, other, ids))
        return np.where(chosen, hidden, ids), labels

    def choose(self, ids: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Of the words of a window (or its tokens) the share ``rate``, rounded up or down at random; (n,) bool."""
        hidable = self.hidable[ids]
        words = self.number_words(ids)
        candidates = np.unique(words[hidable])
        count = int(self.rate * len(candidates) + generator.random())
        chosen = np.zeros(words[-1] + 1, dtype=bool)
        chosen[generator.permutation(candidates)[:count]] = True
        return chosen[words] & hidable

    def number_words(self, ids: np.ndarray) -> np.ndarray:
        """The word that each token is part of, 0, 1, ...; every token is one if they are not taken whole."""
        if self.spaces is None:
            return np.arange(len(ids))
        begins, ends = self.spaces[0][ids], self.spaces[1][ids]
        special = ~self.hidable[ids]
        new = begins | special
        new[1:] |= ends[:-1] | special[:-1]
        return np.cumsum(new)


def make_masking(tokenizer: Tokenizer, rate: float = 0.15, whole_words: bool = False) -> _Masking:
    """RoBERTa's masking with this tokeniser's vocabulary."""
    require(0 < rate < 1, f"A share of the tokens is hidden, so 0 < rate < 1; got {rate}.")
    require("mask" in tokenizer.specials, "A hidden token is replaced by <mask>, which this tokeniser has not.")
    hidable = np.ones(len(tokenizer), dtype=bool)
    hidable[tokenizer.special_ids] = False
    spaces = _find_spaces(tokenizer) if whole_words else None
    return _Masking(rate, tokenizer.specials["mask"], np.flatnonzero(hidable), hidable, spaces)


def _find_spaces(tokenizer: Tokenizer) -> np.ndarray:
    texts = tokenizer.decode_each()
    return np.array([[text[:1].isspace() for text in texts], [text[-1:].isspace() for text in texts]])


@dataclass(frozen=True)
class MaskedWindows:
    """Windows of a stream with some tokens hidden; a start token stands before each, within its length.

    ``fixed`` windows hide the same in every epoch and with every seed, so that evaluations compare.
    """

    windows: Windows
    masking: _Masking
    start: int
    fixed: bool

    def __post_init__(self) -> None:
        require(self.windows.length >= 2, f"A start and a token make a window of 2 or more; got {self.windows.length}.")

    @property
    def step(self) -> int:
        return self.windows.length - 1

    def __len__(self) -> int:
        tokens = len(self.windows.stream)
        return tokens // self.step if self.windows.whole else -(-tokens // self.step)

    def sample(self, draw: Draw) -> Sample:
        stream, begin = self.windows.stream, draw.index * self.step
        end = min(begin + self.step, len(stream))
        ids = np.concatenate([[self.start], stream.read(begin, end)])
        hidden, labels = self.masking.hide(ids, (Draw(draw.index) if self.fixed else draw).generator())
        sequences = {"sequences": np.append([0], stream.sequences(begin, end))} if self.windows.packed else {}
        return {"input_ids": hidden, "labels": labels} | sequences
