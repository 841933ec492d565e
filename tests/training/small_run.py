"""A run that takes a second, for tests; as a script it is the process that they kill."""

import argparse
import os
import signal
from pathlib import Path

import numpy as np
import torch

from lrpe.data.dataset import Dataset, Draw, Rows
from lrpe.models import LrpeConfig
from lrpe.tasks.image_classification import ImageClassification
from lrpe.training.loop import Loop, Training, train
from lrpe.training.optimization import Optimization
from lrpe.training.processes import joined, rank, world

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "patch_size": 2}


def small_task(rows: int = 40) -> ImageClassification:
    """Which half of an image is brighter?"""
    generator = np.random.default_rng(0)
    samples = []
    for i in range(rows):
        pixels, label = generator.standard_normal((1, 4, 4)).astype(np.float32), i % 2
        pixels[:, :, 2 * label : 2 * label + 2] += 1.5
        samples.append({"pixels": pixels, "label": label, "draw": Draw(i)})
    splits = {"train": Rows(samples), "validation": Rows(samples[:16])}
    return ImageClassification(Dataset("halves", splits, {"labels": 2, "image size": 4, "channels": 1}))


def small_training(updates: int = 12, batch: int = 8, **changes) -> Training:
    plan = {"updates": updates, "batch": batch, "warmup": 2, "rate": 1e-2}
    plan |= {name: changes.pop(name) for name in list(changes) if name in Optimization.__dataclass_fields__}
    return Training(Optimization(**plan), **{"evaluate_every": 6, "save_every": 2} | changes)


def run(folder: Path, training: Training | None = None, dropout: float = 0.1) -> dict[str, float]:
    task = small_task()
    torch.manual_seed(0)
    model = task.model_class(LrpeConfig(**SIZES, **task.fields(), hidden_dropout_prob=dropout))
    return train(task, model, training or small_training(), folder, {"name": "small"}, "small")


def ask_last_process_to_stop(update: int) -> None:
    """A request to stop that comes during that update, and to the last process alone."""
    learn = Loop.learn

    def ask(self, steps):
        if self.update + 1 == update and rank() == world() - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return learn(self, steps)

    Loop.learn = ask


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--micro-batch", type=int, default=0)
    parser.add_argument("--stop-at", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    ask_last_process_to_stop(asked.stop_at)
    with joined():
        run(asked.folder, small_training(micro_batch=asked.micro_batch, save_every=1), dropout=0.0)
