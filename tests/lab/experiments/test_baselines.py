import numpy as np
import pytest

from lrpe.lab.data.dataset import Draw
from lrpe.lab.experiments.baselines import Counts, count_text, majority_levels
from lrpe.lab.experiments.build import build_task
from lrpe.lab.experiments.columns import COLUMNS, stdlib
from lrpe.lab.experiments.scale import smoke


def test_counts_have_the_entropy_that_they_should():
    generator = np.random.default_rng(0)
    ids = generator.integers(0, 4, 40_000)
    assert Counts(ids, 4).unigram_bits(ids) == pytest.approx(2, abs=0.01)
    chain = np.cumsum(generator.integers(0, 2, 40_000)) % 4  # each token stays or is followed by the next: 1 bit
    counts = Counts(chain[:30_000], 4)
    mix = counts.best_mix(chain[30_000:35_000])
    assert counts.bigram_bits(chain[35_000:], mix) == pytest.approx(1, abs=0.05)


def test_a_pair_that_was_never_seen_costs_what_its_token_does():
    counts = Counts(np.array([0, 1, 0, 1, 0, 2]), 3)
    assert counts.bigram_bits(np.array([2, 1]), 0.5) == pytest.approx(-np.log2(0.5 * counts.alone[1]))


def test_pairs_tell_more_of_a_text_than_tokens_do():
    found = count_text(build_task(smoke(stdlib()).with_data({})), tokens=20_000)
    assert set(found) == {"validation", "test"}
    for bits in found.values():
        assert 2 < bits["bigrams"] < bits["unigrams"] < 6


@pytest.mark.parametrize("column", ["glue-rte", "lra-listops", "imagenet"])
def test_the_majority_class_is_the_share_of_trainings_most_frequent_label(column):
    experiment = smoke(COLUMNS[column]()).with_data({})
    splits = build_task(experiment).dataset.splits
    labels = {name: [split.sample(Draw(i))["label"] for i in range(len(split))] for name, split in splits.items()}
    most = max(sorted(set(labels["train"])), key=labels["train"].count)
    levels = majority_levels(experiment)
    assert levels.keys() == splits.keys()
    for name, level in levels.items():
        assert level["majority"] == pytest.approx(labels[name].count(most) / len(labels[name]))


def test_always_the_same_answer_correlates_with_nothing_and_text_has_no_labels():
    assert majority_levels(smoke(COLUMNS["glue-cola"]()).with_data({}))["validation"] == {"majority": 0.0}
    assert majority_levels(smoke(stdlib()).with_data({})) == {}
