"""Mask tokens as RoBERTa does: some of each window, drawn anew in every epoch."""

from dataclasses import dataclass

import numpy as np

from lrpe.errors import require
from lrpe.lab.data.dataset import Draw, Sample
from lrpe.lab.data.text.text_dataset import UNSCORED, Windows
from lrpe.lab.data.text.tokenizer import Tokenizer

_MASKED, _REPLACED = 0.8, 0.1  # shares of the tokens to predict; the others stay unchanged


@dataclass(frozen=True)
class _Masking:
    """The tokens that may be hidden, and their replacements.

    Special tokens are never hidden. With ``spaces``, which mark where words begin and end, whole words are hidden.
    """

    rate: float
    mask: int
    ordinary: np.ndarray  # the ids that are not special
    hidable: np.ndarray  # (vocabulary,) bool
    spaces: np.ndarray | None = None  # (2, vocabulary) bool: the text begins with a space, ends with one

    def hide(self, ids: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids with some hidden, and the labels: the true ids where hidden, UNSCORED elsewhere."""
        chosen = self.choose(ids, generator)
        labels = np.where(chosen, ids, UNSCORED)
        fate = generator.random(len(ids))
        other = generator.choice(self.ordinary, len(ids))
        hidden = np.where(fate < _MASKED, self.mask, np.where(fate < _MASKED + _REPLACED, other, ids))
        return np.where(chosen, hidden, ids), labels

    def choose(self, ids: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Choose the share ``rate`` of the words (or tokens) of a window, rounded up or down at random; (n,) bool."""
        hidable = self.hidable[ids]
        words = self.number_words(ids)
        candidates = np.unique(words[hidable])
        count = int(self.rate * len(candidates) + generator.random())
        chosen = np.zeros(words[-1] + 1, dtype=bool)
        chosen[generator.permutation(candidates)[:count]] = True
        return chosen[words] & hidable

    def number_words(self, ids: np.ndarray) -> np.ndarray:
        """Return the number of the word that each token is part of; without ``spaces`` each token is a word."""
        if self.spaces is None:
            return np.arange(len(ids))
        begins, ends = self.spaces[0][ids], self.spaces[1][ids]
        special = ~self.hidable[ids]
        new = begins | special
        new[1:] |= ends[:-1] | special[:-1]
        return np.cumsum(new)


def make_masking(tokenizer: Tokenizer, rate: float = 0.15, whole_words: bool = False) -> _Masking:
    """Return RoBERTa's masking for this tokeniser's vocabulary.

    Raises:
        LrpeError: ``rate`` is not between 0 and 1, or the tokeniser has no <mask>.
    """
    require(0 < rate < 1, f"rate, the share of hidden tokens, must satisfy 0 < rate < 1; got rate={rate}.")
    require(
        "mask" in tokenizer.specials,
        "The tokeniser has no <mask>, which hides tokens; add it by with_specials('mask').",
    )
    hidable = np.ones(len(tokenizer), dtype=bool)
    hidable[tokenizer.special_ids] = False
    spaces = _find_spaces(tokenizer) if whole_words else None
    return _Masking(rate, tokenizer.specials["mask"], np.flatnonzero(hidable), hidable, spaces)


def _find_spaces(tokenizer: Tokenizer) -> np.ndarray:
    texts = tokenizer.decode_each()
    return np.array([[text[:1].isspace() for text in texts], [text[-1:].isspace() for text in texts]])


@dataclass(frozen=True)
class MaskedWindows:
    """Windows of a stream with some tokens hidden; each begins with a start token, which counts towards its length.

    ``fixed`` windows hide the same tokens in every epoch and with every seed, so that evaluations are comparable.
    """

    windows: Windows
    masking: _Masking
    start: int
    fixed: bool

    def __post_init__(self) -> None:
        require(
            self.windows.length >= 2,
            f"length must be at least 2, for the start and one token; got length={self.windows.length}.",
        )

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
