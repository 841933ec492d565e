"""Small runs learn: more than counting does of a text, digits, and ListOps beyond its most frequent answer."""

import math
from dataclasses import replace

import pytest

from lrpe.lab.experiments.baselines import counted_perplexity
from lrpe.lab.experiments.columns import ARENA, imagenet, stdlib
from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.methods import SEVEN
from lrpe.lab.experiments.run import run
from lrpe.lab.experiments.scale import demo, small, smoke

pytestmark = pytest.mark.slow


def brief(experiment: Experiment, updates: int, scored: int, **changes: float) -> Experiment:
    """Return the experiment with fewer updates, scored once."""
    plan = replace(experiment.training.optimization, updates=updates, warmup=updates // 10, **changes)
    training = replace(experiment.training, optimization=plan, evaluate_every=updates, evaluation_batches=scored)
    return replace(experiment.with_data({}), training=training, scored=scored)


@pytest.mark.parametrize("method", SEVEN)
def test_every_method_learns_more_of_the_text_than_counting_bytes_does(tmp_path, method):
    experiment = brief(smoke(stdlib(method)), updates=300, scored=4, rate=1e-2)
    counted = counted_perplexity(experiment)["validation"]
    assert run(experiment, tmp_path)["validation"]["perplexity"] < 0.8 * counted["unigrams"]


def test_type_2_learns_more_of_the_text_than_counting_pairs_does(tmp_path):
    experiment = brief(demo(stdlib("type2")), updates=300, scored=4)
    counted = counted_perplexity(experiment)["validation"]
    assert run(experiment, tmp_path)["validation"]["perplexity"] < counted["bigrams"] < counted["unigrams"]


def test_nineteen_of_twenty_digits_are_read_by_a_model_that_knows_where_they_are(tmp_path):
    results = run(brief(small(imagenet("type2", "absolute")), updates=300, scored=0), tmp_path)
    assert results["test"]["accuracy"] >= 0.95


def test_listops_is_learned_beyond_its_most_frequent_answer(tmp_path):
    results = run(brief(small(ARENA["lra-listops"]("type2")), updates=120, scored=0), tmp_path)["test"]
    error = math.sqrt(results["majority"] * (1 - results["majority"]) / 2_000)
    assert results["accuracy"] > results["majority"] + 3 * error
