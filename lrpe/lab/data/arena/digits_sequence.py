"""Images as sequences that every machine has: scikit-learn's digits, pixel by pixel."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np

from lrpe.errors import require
from lrpe.lab.data.arena.sequences import Row, Sequences, facts, held
from lrpe.lab.data.dataset import Dataset, Draw, Sample, Split
from lrpe.lab.data.entry import Entry
from lrpe.lab.data.images import digits
from lrpe.typed import Range

SIDE = 8
Scale = Annotated[int, Range(1, 128)]


def load(scale: Scale = 1) -> Dataset:
    """64 pixels from 0 to 255, in 17 steps; ``scale`` repeats each pixel in both directions, so that 4 gives the 1,024
    of Long-Range Arena. The splits are those of the digits as images."""
    require(scale >= 1, f"A pixel is repeated once or more; got scale={scale}.")
    images = digits.load()
    splits = {name: held(Sequences, rows(split, scale)) for name, split in images.splits.items()}
    known = facts(splits, vocabulary=256, labels=10, padding=None, side=SIDE * scale, content=images.facts["content"])
    return Dataset("digits-sequence", {**splits}, known, show)


def rows(split: Split, scale: int) -> Iterator[Row]:
    for i in range(len(split)):
        sample = split.sample(Draw(i))
        pixels = np.rint((sample["pixels"][0] + 1) * 127.5).astype(np.uint8)
        yield sample["label"], (pixels.repeat(scale, 0).repeat(scale, 1).tobytes(),)


def show(sample: Sample) -> str:
    side = round(len(sample["ids"]) ** 0.5)
    lines = ("".join(" .:-=+*#%@"[pixel // 26] for pixel in row) for row in sample["ids"].reshape(side, side))
    return f"{sample['label']}: {'|'.join(lines)}"


ENTRIES = (
    Entry(
        "digits-sequence",
        "sequence",
        "handwritten digits, pixel by pixel, 64 or more",
        "CC BY 4.0 (UCI, optical recognition of handwritten digits)",
        "scikit-learn, which brings it",
        None,
        load,
    ),
)
