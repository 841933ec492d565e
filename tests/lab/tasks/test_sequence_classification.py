import numpy as np
import pytest
import torch

from lrpe.lab.data.arena import image, retrieval
from lrpe.lab.data.dataset import Dataset, Rows
from lrpe.lab.tasks.sequence_classification import PairClassification, SequenceClassification
from lrpe.lab.tasks.task import evaluate
from lrpe.models.configuration import LrpeConfig

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def three_sequences(**more):
    rows = [{"ids": np.arange(n, dtype=np.uint8), "label": label} for n, label in ((2, 1), (5, 0), (3, 1))]
    facts = {"vocab_size": 9, "num_labels": 2, "pad_token_id": 8} | more
    return Dataset("three", {"train": Rows(rows)}, facts)


def model_of(task):
    torch.manual_seed(0)
    return task.model_class(LrpeConfig(**SMALL | task.fields())).eval()


def test_a_batch_is_padded_and_its_mask_says_where():
    task = SequenceClassification(three_sequences())
    (batch,) = task.batches("train", 3, training=False).epoch(0)
    assert batch["input_ids"].tolist() == [[0, 1, 8, 8, 8], [0, 1, 2, 3, 4], [0, 1, 2, 8, 8]]
    assert batch["attention_mask"].sum(1).tolist() == [2, 5, 3]
    assert batch["labels"].tolist() == [1, 0, 1]


def test_padding_changes_no_prediction():
    task = SequenceClassification(three_sequences())
    model, samples = model_of(task), task.dataset.splits["train"].rows
    together = task.observe(model, task.collate(samples))["losses"]
    alone = torch.cat([task.observe(model, task.collate([sample]))["losses"] for sample in samples])
    torch.testing.assert_close(together, alone)


def test_the_loss_of_a_batch_is_the_sum_over_its_samples():
    task = SequenceClassification(three_sequences())
    batch, model = task.collate(task.dataset.splits["train"].rows), model_of(task)
    loss = task.loss(model, batch)
    assert loss.count.item() == 3
    torch.testing.assert_close(loss.total, task.observe(model, batch)["losses"].sum())
    loss.total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_majority_is_the_share_of_the_most_frequent_label():
    task = SequenceClassification(three_sequences())
    labels, losses = torch.tensor([1, 0, 1, 1]), torch.ones(4)
    found = task.metrics({"predictions": torch.tensor([1, 1, 1, 0]), "labels": labels, "losses": losses})
    assert found == {"accuracy": 0.5, "majority": 0.75, "loss": 1.0}
    assert (task.metric, task.better) == ("accuracy", "higher")


@pytest.mark.parametrize(
    ("task_class", "load"),
    [
        (SequenceClassification, image.load_digits),
        (PairClassification, lambda: retrieval.load_stdlib_pairs(64, train=8, validation=9, test=8)),
    ],
)
def test_a_model_is_measured_on_embedded_data(task_class, load):
    task = task_class(load())
    batches = task.batches("validation", 4, training=False).epoch(0)
    found = evaluate(task, model_of(task), [next(batches), next(batches), None])
    assert 0 <= found["accuracy"] <= 1
    assert found["loss"] > 0


def test_the_two_texts_of_a_pair_are_padded_separately():
    task = PairClassification(three_sequences())
    samples = [{"ids": np.zeros(n), "pair_ids": np.ones(m), "label": 0} for n, m in ((1, 4), (3, 2))]
    batch = task.collate(samples)
    assert batch["input_ids"].shape == (2, 3)
    assert batch["pair_input_ids"].tolist() == [[1, 1, 1, 1], [1, 1, 8, 8]]
    assert batch["pair_attention_mask"].sum(1).tolist() == [4, 2]
    assert model_of(task)(**{name: value for name, value in batch.items() if name != "labels"}).logits.shape == (2, 2)
