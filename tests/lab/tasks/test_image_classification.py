import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lrpe import LrpeError
from lrpe.lab.data.dataset import Dataset, Draw, Rows
from lrpe.lab.data.images.digits import load as load_digits
from lrpe.lab.tasks.image_classification import ImageClassification, Mixing, mix
from lrpe.lab.tasks.task import evaluate
from lrpe.models import LrpeConfig

TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "patch_size": 2}


def made(count: int = 6, labels: int = 3) -> Dataset:
    """Images whose class is their brightness."""
    rows = [
        {"pixels": np.full((1, 4, 4), i % labels, dtype=np.float32), "label": i % labels, "draw": Draw(i)}
        for i in range(count)
    ]
    return Dataset("made", {"train": Rows(rows)}, {"labels": labels, "image size": 4, "channels": 1})


def build(task):
    torch.manual_seed(0)
    return task.model_class(LrpeConfig(**TINY, **task.fields()))


def test_the_loss_is_the_sum_of_the_cross_entropies():
    task = ImageClassification(made())
    model, batch = build(task), next(task.batches("train", 6, training=False).epoch(0))
    loss = task.loss(model, batch)
    expected = torch.nn.functional.cross_entropy(model(batch["pixel_values"]).logits, batch["labels"], reduction="sum")
    assert_close(loss.total, expected)
    assert loss.count.item() == 6


def test_accuracy_counts_every_sample_once_for_any_batches():
    task = ImageClassification(load_digits())
    model = build(task)
    found = [evaluate(task, model, task.batches("validation", size, training=False).epoch(0)) for size in (7, 64)]
    assert found[0] == pytest.approx(found[1])
    assert 0 <= found[0]["accuracy"] <= found[0]["top-5 accuracy"] <= 1


@pytest.mark.parametrize("mixing", [Mixing(0.8, 0, 0), Mixing(0, 1.0, 0), Mixing()])
def test_a_mixed_batch_has_targets_in_proportion_to_its_pixels(mixing):
    batch = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, 16, 16).clone()
    targets = torch.eye(4)
    for seed in range(20):
        pixels, mixed = mix(batch, targets, mixing, Draw(0, seed=seed))
        assert_close(mixed.sum(-1), torch.ones(4))
        share = (mixed[0, 0] - mixing.smoothing / 4) / (1 - mixing.smoothing)  # of the first image in itself
        assert_close(pixels[0].mean(), (1 - share) * 3, atol=1e-4, rtol=1e-4)  # the rest is the last image, all threes


def test_a_batch_is_mixed_the_same_way_each_time_it_is_drawn():
    task = ImageClassification(made(), Mixing())
    once, again = (next(task.batches("train", 6, training=True, seed=2).epoch(3)) for _ in range(2))
    assert_close(once, again)


def test_damaged_files_are_named_once_and_too_many_are_an_error(capsys):
    rows = Rows([{"pixels": np.zeros((1, 4, 4), dtype=np.float32), "label": 0, "skipped": [0]}] * 20)
    object.__setattr__(rows, "files", [f"image-{i}" for i in range(20)])
    task = ImageClassification(Dataset("made", {"train": rows}, {"labels": 2, "image size": 4, "channels": 1}))
    model = build(task)
    for batch in task.batches("train", 5, training=False).epoch(0):
        task.loss(model, batch)
    assert capsys.readouterr().err.count("image-0 cannot be decoded") == 1
    with pytest.raises(LrpeError, match="files of made are damaged"):
        task.loss(model, batch | {"skipped": torch.arange(11)})
