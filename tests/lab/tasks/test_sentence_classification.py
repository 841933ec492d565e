import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lrpe.lab.data.dataset import Dataset, Rows
from lrpe.lab.data.glue.stand_ins import load
from lrpe.lab.data.text.tokenizer import byte_level
from lrpe.lab.tasks.language_modelling import MaskedLanguageModelling
from lrpe.lab.tasks.sentence_classification import METRICS, SentenceClassification
from lrpe.lab.tasks.task import evaluate
from lrpe.models import LrpeConfig
from tests.lab.data.texts import dataset, write_gpt2

TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "pooling": "first",
}


def task_of(name: str, length: int = 64) -> SentenceClassification:
    return SentenceClassification(load(name), byte_level(), length)


def build(task):
    torch.manual_seed(0)
    return task.model_class(LrpeConfig(**TINY, **task.fields()))


@pytest.mark.slow
def test_sentences_are_marked_as_roberta_marks_them():
    task = task_of("rte")
    s, e = (task.tokenizer.specials[role] for role in ("bos", "eos"))
    one = task.encode({"first": "ab", "second": None, "label": 0})
    two = task.encode({"first": "ab", "second": "c", "label": 0})
    assert one.tolist() == [s, 97, 98, e]
    assert two.tolist() == [s, 97, 98, e, e, 99, e]


def test_a_vocabulary_without_a_start_token_does_not_grow(tmp_path):
    before = MaskedLanguageModelling(dataset(tokenizer=str(write_gpt2(tmp_path)), length=12))
    task = SentenceClassification(load("rte"), before.tokenizer)
    assert task.fields()["vocab_size"] == before.fields()["vocab_size"]
    end = task.tokenizer.specials["eos"]
    ids = task.encode({"first": "a", "second": None, "label": 0}).tolist()
    assert (ids[0], ids[-1]) == (end, end)


@pytest.mark.parametrize(("first", "second"), [("a" * 99, "b" * 5), ("a" * 5, "b" * 99), ("a" * 99, "b" * 99)])
def test_a_pair_that_is_too_long_loses_from_its_longer_sentence(first, second):
    task = task_of("rte", length=20)
    ids = task.encode({"first": first, "second": second, "label": 0}).tolist()
    assert len(ids) == 20
    kept = [ids.count(ord("a")), ids.count(ord("b"))]
    assert kept == ([11, 5] if len(second) == 5 else [5, 11] if len(first) == 5 else [8, 8])


@pytest.mark.parametrize("name", ["cola", "stsb", "mnli"])
def test_loss_and_metric_are_those_of_the_task(name):
    task = task_of(name)
    model, batches = build(task), list(task.batches("validation", 64, training=False).epoch(0))
    loss = task.loss(model, batches[0])
    logits = model(batches[0]["input_ids"], batches[0]["attention_mask"]).logits
    expected = (
        torch.nn.functional.mse_loss(logits[:, 0], batches[0]["labels"], reduction="sum") if name == "stsb" else None
    )
    if expected is None:
        expected = torch.nn.functional.cross_entropy(logits, batches[0]["labels"], reduction="sum")
    assert_close(loss.total, expected)
    found = evaluate(task, model, batches)
    assert (
        list(found)
        == {"cola": ["matthews", "accuracy", "f1"], "stsb": ["pearson", "spearman"], "mnli": ["accuracy"]}[name]
    )
    assert task.metric == next(iter(found))


def test_metrics_do_not_depend_on_how_samples_are_batched():
    task = task_of("mrpc")
    model = build(task)
    found = [evaluate(task, model, task.batches("validation", size, training=False).epoch(0)) for size in (16, 100)]
    assert found[0] == found[1]


def test_metrics_have_their_known_values():
    labels = np.array([0, 1, 1, 0, 1])
    assert METRICS["accuracy"](labels, labels) == 1
    assert METRICS["matthews"](1 - labels, labels) == -1
    assert METRICS["f1"](np.array([1, 1, 0, 0, 0]), labels) == pytest.approx(2 * 1 / (2 + 3))
    assert METRICS["pearson"](2.0 * labels + 1, labels) == pytest.approx(1)
    assert METRICS["spearman"](np.exp(labels), labels) == pytest.approx(1)
    assert METRICS["pearson"](np.ones(5), labels) == 0  # and not NaN


def test_a_small_model_learns_what_is_acceptable():
    task = task_of("cola", length=200)
    few = Dataset("few", {"train": Rows(task.dataset.splits["train"].rows[:32])}, task.dataset.facts)  # type: ignore[attr-defined]
    task = SentenceClassification(few, byte_level(), 200)
    model = build(task)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for epoch in range(12):
        for batch in task.batches("train", 16, training=True).epoch(epoch):
            loss = task.loss(model, batch)
            optimizer.zero_grad()
            (loss.total / loss.count).backward()
            optimizer.step()
            losses.append(float((loss.total / loss.count).detach()))
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
