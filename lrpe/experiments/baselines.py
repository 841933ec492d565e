"""What needs no network: counts of tokens and of pairs. A model that does not beat them has learned nothing."""

import math

import numpy as np

MIXES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)


def unigram_bits(train: np.ndarray, held_out: np.ndarray, vocabulary: int) -> float:
    """Bits a token of the held-out ids under the smoothed frequencies of the training ids."""
    return float(-np.log2(frequencies(train, vocabulary)[held_out]).mean())


def bigram_bits(train: np.ndarray, tuning: np.ndarray, held_out: np.ndarray, vocabulary: int) -> float:
    """The same under a mix of what followed the token before and of frequencies; the mix is tuned on ``tuning``."""
    pairs = np.bincount(train[:-1].astype(np.int64) * vocabulary + train[1:], minlength=vocabulary**2)
    pairs = pairs.reshape(vocabulary, vocabulary).astype(np.float64)
    after = pairs / np.maximum(pairs.sum(1, keepdims=True), 1)
    alone = frequencies(train, vocabulary)

    def bits(ids: np.ndarray, mix: float) -> float:
        known = mix * after[ids[:-1], ids[1:]] + (1 - mix) * alone[ids[1:]]
        return float((-np.log2(known)).mean())

    best = min(MIXES, key=lambda mix: bits(tuning, mix))
    return bits(held_out, best)


def frequencies(ids: np.ndarray, vocabulary: int) -> np.ndarray:
    counts = np.bincount(ids, minlength=vocabulary) + 0.5
    return counts / counts.sum()


def perplexity(bits: float) -> float:
    return math.pow(2, bits)
