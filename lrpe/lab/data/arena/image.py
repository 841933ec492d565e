"""The Image task of Long-Range Arena: grey CIFAR-10 (Krizhevsky, 2009) or digits, as sequences of pixels."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np

from lrpe.errors import require
from lrpe.lab.data.arena.sequences import Row, Sequences, hold, sequence_facts
from lrpe.lab.data.dataset import Dataset, Draw, Entry, Sample, Split
from lrpe.lab.data.images import digits
from lrpe.lab.data.images.cifar import LABELS, PIXELS, read_cifar
from lrpe.schema import Range


def load_cifar(path: Path) -> Dataset:
    """Load CIFAR-10 as sequences of 1,024 grey values from 0 to 255."""
    read = read_cifar(path)
    splits = {name: grey_sequences(part) for name, part in read.splits.items()}
    known = sequence_facts(splits, vocabulary=256, labels=10, padding=None, names=list(LABELS), side=32)
    return Dataset("lra-image", {**splits}, known | {"content": read.content}, _show_cifar)


def grey_sequences(records: np.ndarray) -> Sequences:
    """Convert records to sequences of grey values."""
    pixels = np.concatenate([to_grey(part) for part in np.array_split(records, max(1, len(records) // 1000))])
    edges = PIXELS * np.arange(len(records) + 1, dtype=np.int64)
    return Sequences(pixels.reshape(-1), edges, records[:, 0].astype(np.int64))


def to_grey(records: np.ndarray) -> np.ndarray:
    """Return 0.299 red + 0.587 green + 0.114 blue, rounded."""
    red, green, blue = records[:, 1:].reshape(-1, 3, PIXELS).astype(np.int32).transpose(1, 0, 2)
    return ((299 * red + 587 * green + 114 * blue + 500) // 1000).astype(np.uint8)


def _show_cifar(sample: Sample) -> str:
    return f"{LABELS[sample['label']]}: {_shades(sample['ids'])}"


def _shades(pixels: Iterable[int]) -> str:
    """Draw every second pixel of every second row, in one line."""
    rows = np.asarray(pixels).reshape(32, 32)[::2, ::2]
    return "|".join("".join(" .:-=+*#%@"[pixel // 26] for pixel in row) for row in rows)


_DIGIT_SIDE = 8
_Scale = Annotated[int, Range(1, 128)]


def load_digits(scale: _Scale = 1) -> Dataset:
    """Load the 8 × 8 digits as sequences of 64 grey values from 0 to 255, in 17 steps.

    ``scale`` repeats each pixel in both directions: 4 gives the 1,024 of Long-Range Arena. The splits are the same as
    for the digits as images.
    """
    require(scale >= 1, f"scale must be at least 1; got scale={scale}.")
    images = digits.load()
    splits = {name: hold(Sequences, _read_pixels(split, scale)) for name, split in images.splits.items()}
    known = sequence_facts(
        splits, vocabulary=256, labels=10, padding=None, side=_DIGIT_SIDE * scale, content=images.facts["content"]
    )
    return Dataset("digits-sequence", {**splits}, known, _show_digits)


def _read_pixels(split: Split, scale: int) -> Iterator[Row]:
    for i in range(len(split)):
        sample = split.sample(Draw(i))
        pixels = np.rint((sample["pixels"][0] + 1) * 127.5).astype(np.uint8)
        yield sample["label"], (pixels.repeat(scale, 0).repeat(scale, 1).tobytes(),)


def _show_digits(sample: Sample) -> str:
    side = round(len(sample["ids"]) ** 0.5)
    lines = ("".join(" .:-=+*#%@"[pixel // 26] for pixel in row) for row in sample["ids"].reshape(side, side))
    return f"{sample['label']}: {'|'.join(lines)}"


ENTRIES = (
    Entry(
        "lra-image",
        "sequence",
        "grey CIFAR-10, 1,024 pixels in sequence",
        "none stated; free to use with a citation (Krizhevsky, 2009)",
        "https://www.cs.toronto.edu/~kriz/cifar.html (the binary version)",
        "cifar-10-batches-bin/{data_batch_1.bin, ..., data_batch_5.bin, test_batch.bin}",
        load_cifar,
    ),
    Entry(
        "digits-sequence",
        "sequence",
        "handwritten digits, 64 or more pixels in sequence",
        "CC BY 4.0 (UCI, optical recognition of handwritten digits)",
        "included in scikit-learn",
        None,
        load_digits,
    ),
)
