"""Image of Long-Range Arena: CIFAR-10 (Krizhevsky, 2009) in grey, read pixel by pixel."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from lrpe.errors import LrpeError, require
from lrpe.lab.data.arena.sequences import Sequences, facts
from lrpe.lab.data.cache import hash_files
from lrpe.lab.data.dataset import Dataset, Sample
from lrpe.lab.data.entry import Entry

LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PIXELS = 32 * 32
RECORD = 1 + 3 * PIXELS  # a label, then red, green and blue, each row by row
TRAIN_SHARE = 0.9  # of the batches for training; the rest, at their end, is for validation, as officially


def load(path: Path) -> Dataset:
    """1,024 pixels from 0 to 255 for each image."""
    root = path / "cifar-10-batches-bin" if (path / "cifar-10-batches-bin").is_dir() else path
    batches, test = sorted(root.glob("data_batch_*.bin")), root / "test_batch.bin"
    require(
        bool(batches) and test.exists(), f"{str(root)!r} has data_batch_1.bin ... data_batch_5.bin and test_batch.bin."
    )
    records = np.concatenate([read_records(file) for file in batches])
    count = int(TRAIN_SHARE * len(records))
    parts = {"train": records[:count], "validation": records[count:], "test": read_records(test)}
    splits = {name: grey_sequences(part) for name, part in parts.items()}
    known = facts(splits, vocabulary=256, labels=10, padding=None, names=list(LABELS), side=32)
    return Dataset("lra-image", {**splits}, known | {"content": hash_files(*batches, test)}, show)


def read_records(file: Path) -> np.ndarray:
    """The records of a file, uint8 (n, 3073)."""
    try:
        content = np.frombuffer(file.read_bytes(), dtype=np.uint8)
    except OSError as error:
        raise LrpeError(f"{str(file)!r} cannot be read: {error}.") from error
    rest = len(content) % RECORD
    require(
        len(content) > 0 and rest == 0,
        f"{str(file)!r} is records of {RECORD} bytes; the one at offset {len(content) - rest} has {rest}: get it anew.",
    )
    records = content.reshape(-1, RECORD)
    wrong = np.flatnonzero(records[:, 0] >= len(LABELS))
    require(
        len(wrong) == 0,
        lambda: f"{str(file)!r}, offset {wrong[0] * RECORD}: a label is 0 ... 9; got {records[wrong[0], 0]}.",
    )
    return records


def grey_sequences(records: np.ndarray) -> Sequences:
    """0.299 red + 0.587 green + 0.114 blue, rounded."""
    pixels = np.concatenate([grey(part) for part in np.array_split(records, max(1, len(records) // 1000))])
    edges = PIXELS * np.arange(len(records) + 1, dtype=np.int64)
    return Sequences(pixels.reshape(-1), edges, records[:, 0].astype(np.int64))


def grey(records: np.ndarray) -> np.ndarray:
    red, green, blue = records[:, 1:].reshape(-1, 3, PIXELS).astype(np.int32).transpose(1, 0, 2)
    return ((299 * red + 587 * green + 114 * blue + 500) // 1000).astype(np.uint8)


def show(sample: Sample) -> str:
    return f"{LABELS[sample['label']]}: {shades(sample['ids'])}"


def shades(pixels: Iterable[int]) -> str:
    """Every second pixel of every second row, as a line."""
    rows = np.asarray(pixels).reshape(32, 32)[::2, ::2]
    return "|".join("".join(" .:-=+*#%@"[pixel // 26] for pixel in row) for row in rows)


ENTRIES = (
    Entry(
        "lra-image",
        "sequence",
        "CIFAR-10 in grey, pixel by pixel, 1,024",
        "none stated; free to use with a citation (Krizhevsky, 2009)",
        "https://www.cs.toronto.edu/~kriz/cifar.html (the binary version)",
        "cifar-10-batches-bin/{data_batch_1.bin, ..., data_batch_5.bin, test_batch.bin}",
        load,
    ),
)
