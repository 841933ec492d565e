"""A run that takes a second, and what is compared of two; as a script it is what torchrun starts."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from lrpe.lab.data.dataset import Dataset, Draw, Rows
from lrpe.lab.tasks.image_classification import ImageClassification
from lrpe.lab.training.loop import train
from lrpe.lab.training.processes import process_group
from lrpe.lab.training.settings import Optimization, Training
from lrpe.models import LrpeConfig

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "patch_size": 2}


def small_task(rows: int = 42) -> ImageClassification:
    """Is an image bright or dark?"""
    generator = np.random.default_rng(0)
    samples = []
    for i in range(rows):
        label = i % 2
        pixels = generator.standard_normal((1, 4, 4)).astype(np.float32) + label - 0.5
        samples.append({"pixels": pixels, "label": label, "draw": Draw(i)})
    splits = {"train": Rows(samples), "validation": Rows(samples[:17])}
    return ImageClassification(Dataset("bright or dark", splits, {"labels": 2, "image size": 4, "channels": 1}))


def small_training(updates: int = 12, batch: int = 8, **changes: Any) -> Training:
    plan = {"updates": updates, "batch": batch, "warmup": 2, "rate": 1e-2}
    plan |= {name: changes.pop(name) for name in list(changes) if name in Optimization.__dataclass_fields__}
    return Training(Optimization(**plan), **{"evaluate_every": 6, "save_every": 3} | changes)


def run(folder: Path, training: Training | None = None, dropout: float = 0.1, **fields: Any) -> dict[str, float]:
    task = small_task()
    torch.manual_seed(0)
    model = task.model_class(LrpeConfig(**SIZES | task.fields() | fields, hidden_dropout_prob=dropout))
    return train(task, model, training or small_training(), folder, {"name": "small"}, "small")


def lines(folder: Path) -> list[dict[str, float]]:
    """metrics.jsonl, without the time that it took."""
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in found]


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in lines(folder) if "loss" in line]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "last" / "model.safetensors")


def assert_same_run(folder: Path, whole: Path) -> None:
    """Bit for bit."""
    assert lines(folder) == lines(whole)
    for name, value in weights(whole).items():
        assert torch.equal(weights(folder)[name], value), name


def assert_same_to_rounding(folder: Path, whole: Path) -> None:
    for line, other in zip(lines(folder), lines(whole), strict=True):
        assert line == pytest.approx(other, rel=1e-4, abs=1e-5)
    for name, value in weights(whole).items():
        assert_close(weights(folder)[name], value, rtol=1e-3, atol=1e-5)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with process_group():
        run(Path(sys.argv[1]), small_training(updates=100_000, save_every=1000, evaluate_every=100_000))
