"""Baselines: counted unigrams and bigrams for language models, the majority class for labels, chance for probes.

A model that does not beat them has learned nothing.
"""

import math
from collections.abc import Sequence

import numpy as np

from lrpe.lab.experiments.build import build_task
from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.tasks.language_modelling import LanguageModelling

_MIXES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
COUNTED = 4_000_000  # the largest number of training tokens counted


class Counts:
    """Frequencies of tokens and of pairs of neighbouring tokens."""

    def __init__(self, ids: np.ndarray, vocabulary: int):
        self.vocabulary = vocabulary
        frequencies = np.bincount(ids, minlength=vocabulary) + 0.5
        self.alone = frequencies / frequencies.sum()
        self.pairs, self.counts = np.unique(self.code(ids), return_counts=True)
        self.before = np.maximum(np.bincount(ids[:-1], minlength=vocabulary), 1)

    def code(self, ids: np.ndarray) -> np.ndarray:
        """Return one number per pair of neighbours."""
        return ids[:-1].astype(np.int64) * self.vocabulary + ids[1:]

    def unigram_bits(self, ids: np.ndarray) -> float:
        """Return bits per token under the token frequencies."""
        return float(-np.log2(self.alone[ids]).mean())

    def bigram_bits(self, ids: np.ndarray, mix: float) -> float:
        """Return bits per token under a mix of pair frequencies and token frequencies."""
        codes = self.code(ids)
        places = np.minimum(np.searchsorted(self.pairs, codes), len(self.pairs) - 1)
        counts = np.where(self.pairs[places] == codes, self.counts[places], 0)
        after = counts / self.before[ids[:-1]]
        return float(-np.log2(mix * after + (1 - mix) * self.alone[ids[1:]]).mean())

    def best_mix(self, tuning: np.ndarray) -> float:
        return min(_MIXES, key=lambda mix: self.bigram_bits(tuning, mix))


def count_text(task: LanguageModelling, tokens: int | None = None) -> dict[str, dict[str, float]]:
    """Return bits per token of unigrams and bigrams by split, with the mix tuned on validation."""
    streams = {split: task.text.windows(split).stream for split in task.text.splits}
    first = {split: stream.read(0, min(len(stream), tokens or len(stream))) for split, stream in streams.items()}
    counts = Counts(streams["train"].read(0, min(len(streams["train"]), COUNTED)), len(task.text.tokenizer))
    mix = counts.best_mix(first["validation"])
    return {
        split: {"unigrams": counts.unigram_bits(ids), "bigrams": counts.bigram_bits(ids, mix)}
        for split, ids in first.items()
        if split != "train"
    }


def counted_perplexity(experiment: Experiment) -> dict[str, dict[str, float]]:
    """Return the baselines' perplexity on the tokens on which the experiment is scored."""
    task = build_task(experiment)
    assert isinstance(task, LanguageModelling)
    batch = experiment.training.evaluation_batch or experiment.training.optimization.batch
    tokens = experiment.scored * batch * experiment.data.options["length"] or None
    bits_by_split = count_text(task, tokens)
    return {split: {name: math.pow(2, bits) for name, bits in each.items()} for split, each in bits_by_split.items()}


def chance_levels(experiment: Experiment) -> dict[str, dict[str, float]]:
    """Return the accuracy of guessing among the possible answers of a probe, by split."""
    by_split = build_task(experiment).dataset.facts["chance"]
    return {split: {"chance": level} for split, level in by_split.items()}


def majority_levels(experiment: Experiment) -> dict[str, dict[str, float]]:
    """Return the score of answering every sample with the most frequent label of the training split, by split.

    It is an accuracy, and 0 where the metric is a correlation. Data without labels, or with too many to be counted in
    their facts, have no such score.
    """
    task = build_task(experiment)
    balance = task.dataset.facts.get("balance", {})
    if task.metric != "accuracy":
        return {split: {"majority": 0.0} for split in balance}
    most = int(np.argmax(balance["train"])) if balance else 0
    return {split: {"majority": _share(counts, most)} for split, counts in balance.items()}


def _share(counts: Sequence[int], label: int) -> float:
    """Return the share of a label; counts may end before it."""
    return counts[label] / sum(counts) if label < len(counts) else 0.0
