"""scikit-learn's 1,797 handwritten digits of 8 × 8, which need no download."""

from hashlib import sha256
from typing import Any

import numpy as np

from lrpe.lab.data.dataset import Dataset, Entry, Rows, Sample

_SPLITS = {0: "validation", 1: "test"}  # of ten shares; the rest are for training


def load() -> Dataset:
    """Load pixels (1, 8, 8) in [-1, 1]; a hash of the pixels decides the split, so duplicates stay together."""
    from sklearn.datasets import load_digits  # imported here because it takes seconds

    bunch: Any = load_digits()
    rows: dict[str, list[Sample]] = {"train": [], "validation": [], "test": []}
    for image, label in zip(bunch.images, bunch.target, strict=True):
        share = int(sha256(image.tobytes()).hexdigest(), 16) % 10
        pixels = (image[None] / 8 - 1).astype(np.float32)
        rows[_SPLITS.get(share, "train")].append({"pixels": pixels, "label": int(label)})
    facts = {
        "labels": 10,
        "image size": 8,
        "channels": 1,
        "balance": {name: np.bincount([row["label"] for row in split]).tolist() for name, split in rows.items()},
        "content": sha256(bunch.images.tobytes()).hexdigest(),
    }
    return Dataset("digits", {name: Rows(split) for name, split in rows.items()}, facts, show)


def show(sample: Sample) -> str:
    shades = " .:-=+*#%@"
    lines = ["".join(shades[int((pixel + 1) * 4.5)] for pixel in row) for row in sample["pixels"][0]]
    return f"{sample['label']}: {'|'.join(lines)}"


ENTRIES = (
    Entry(
        "digits",
        "image",
        "handwritten digits of 8 × 8, from scikit-learn",
        "CC BY 4.0 (UCI, optical recognition of handwritten digits)",
        "included in scikit-learn",
        None,
        load,
    ),
)
