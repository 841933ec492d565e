"""CIFAR-10 (Krizhevsky, 2009): its binary files, and its images in colour."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lrpe.errors import LrpeError, require
from lrpe.lab.data.cache import hash_files
from lrpe.lab.data.dataset import Dataset, Draw, Entry, Sample

LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32
PIXELS = SIDE * SIDE
_RECORD = 1 + 3 * PIXELS  # a label, then the red, green and blue planes, each row by row
_TRAIN_SHARE = 0.9  # of the training batches; the last tenth is for validation
_MEAN = np.array([0.4914, 0.4822, 0.4465], dtype=np.float32)[:, None, None]  # of the channels, from 0 to 1
_DEVIATION = np.array([0.2470, 0.2435, 0.2616], dtype=np.float32)[:, None, None]
_MARGIN = 4  # pixels of 0 on each side, of which a crop may take in some


@dataclass(frozen=True)
class Records:
    """The records of each split, uint8 (n, 3073), and a hash of their files."""

    splits: dict[str, np.ndarray]
    content: str


def read_cifar(path: Path) -> Records:
    """Read all records below a path; the last tenth of the training batches is for validation."""
    root = path / "cifar-10-batches-bin" if (path / "cifar-10-batches-bin").is_dir() else path
    batches, test = sorted(root.glob("data_batch_*.bin")), root / "test_batch.bin"
    require(
        bool(batches) and test.exists(),
        f"{str(root)!r} must contain data_batch_1.bin ... data_batch_5.bin and test_batch.bin.",
    )
    records = np.concatenate([read_records(file) for file in batches])
    count = int(_TRAIN_SHARE * len(records))
    splits = {"train": records[:count], "validation": records[count:], "test": read_records(test)}
    return Records(splits, hash_files(*batches, test))


def read_records(file: Path) -> np.ndarray:
    """Return the records of a file, uint8 (n, 3073)."""
    try:
        content = np.frombuffer(file.read_bytes(), dtype=np.uint8)
    except OSError as error:
        raise LrpeError(f"{str(file)!r} cannot be read: {error}.") from error
    rest = len(content) % _RECORD
    require(
        len(content) > 0 and rest == 0,
        f"{str(file)!r} must consist of records of {_RECORD} bytes; the one at offset {len(content) - rest} has "
        f"{rest}. Download the file again.",
    )
    records = content.reshape(-1, _RECORD)
    wrong = np.flatnonzero(records[:, 0] >= len(LABELS))
    require(
        len(wrong) == 0,
        lambda: f"{str(file)!r}, offset {wrong[0] * _RECORD}: the label must be 0 ... 9; got {records[wrong[0], 0]}.",
    )
    return records


@dataclass(frozen=True)
class ColourImages:
    """Samples {"pixels", "label", "draw"}: (3, 32, 32) float32, normalised; varied by flips and crops if asked."""

    records: np.ndarray
    vary: bool = False

    def __len__(self) -> int:
        return len(self.records)

    def sample(self, draw: Draw) -> Sample:
        record = self.records[draw.index]
        image = record[1:].reshape(3, SIDE, SIDE)
        pixels = (image.astype(np.float32) / 255 - _MEAN) / _DEVIATION
        varied = _flip_and_crop(pixels, draw.generator()) if self.vary else pixels
        return {"pixels": varied, "label": int(record[0]), "draw": draw}


def _flip_and_crop(pixels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Flip an image from left to right in half of the draws, and shift it by up to four pixels each way."""
    if generator.random() < 0.5:
        pixels = pixels[:, :, ::-1]
    padded = np.pad(pixels, ((0, 0), (_MARGIN, _MARGIN), (_MARGIN, _MARGIN)))
    top, left = generator.integers(2 * _MARGIN + 1, size=2)
    return np.ascontiguousarray(padded[:, top : top + SIDE, left : left + SIDE])


def load(path: Path, augment: bool = True) -> Dataset:
    """Load CIFAR-10 as images in colour; ``augment`` varies those of training by flips and crops."""
    read = read_cifar(path)
    splits = {name: ColourImages(part, augment and name == "train") for name, part in read.splits.items()}
    facts = {
        "labels": len(LABELS),
        "classes": list(LABELS),
        "image size": SIDE,
        "channels": 3,
        "balance": {
            name: np.bincount(part[:, 0], minlength=len(LABELS)).tolist() for name, part in read.splits.items()
        },
        "content": read.content,
    }
    return Dataset("cifar10", {**splits}, facts, _show)


def _show(sample: Sample) -> str:
    means = (sample["pixels"] * _DEVIATION + _MEAN).mean((1, 2)) * 255
    red, green, blue = (round(float(mean)) for mean in means)
    return f"{LABELS[sample['label']]}: 32 × 32, mean colour ({red}, {green}, {blue})"


ENTRIES = (
    Entry(
        "cifar10",
        "image",
        "CIFAR-10, 32 × 32 in colour, of ten classes",
        "none stated; free to use with a citation (Krizhevsky, 2009)",
        "https://www.cs.toronto.edu/~kriz/cifar.html (the binary version)",
        "cifar-10-batches-bin/{data_batch_1.bin, ..., data_batch_5.bin, test_batch.bin}",
        load,
    ),
)
