"""Images in one folder per class: ImageNet-1k, and any tree of the same layout."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from PIL import Image, UnidentifiedImageError

from lrpe.errors import LrpeError, require
from lrpe.lab.data.dataset import Dataset, Draw, Entry, Sample
from lrpe.lab.data.images.augment import Augment, center_crop
from lrpe.schema import Range

_KINDS = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm"}
_SPLITS = {"train": ("train",), "validation": ("val", "valid", "validation"), "test": ("test",)}
_Side = Annotated[int, Range(1, 4096)]  # pixels
_NARROWEST = 64  # the largest ratio of sides; enlarging the shorter side to ``size`` enlarges the longer one too
_IN_A_ROW = 20  # this many consecutive damaged files mean that the dataset is damaged


@dataclass(frozen=True)
class _ImageFiles:
    """A split of image files, decoded on demand. A file that cannot be decoded is replaced by the next one."""

    files: Sequence[Path]
    labels: Sequence[int]
    size: int
    augment: Augment | None = None

    def __len__(self) -> int:
        return len(self.files)

    def sample(self, draw: Draw) -> Sample:
        """Return {"pixels", "label", "draw", "skipped"}; "skipped" lists the indices of undecodable files."""
        skipped = []
        for step in range(min(_IN_A_ROW, len(self))):
            index = (draw.index + step) % len(self)
            image = decode(self.files[index])
            if image is None:
                skipped.append(index)
                continue
            pixels = center_crop(image, self.size) if self.augment is None else self.vary(image, draw)
            return {"pixels": pixels, "label": self.labels[index], "draw": draw, "skipped": skipped}
        raise LrpeError(f"{len(skipped)} files in a row cannot be decoded, the last being {self.files[skipped[-1]]}.")

    def vary(self, image: Image.Image, draw: Draw):
        assert self.augment is not None
        return self.augment(image, self.size, draw.generator())


def decode(file: Path) -> Image.Image | None:
    """Return an image, or None if its file is damaged; raise if it would take gigabytes.

    A file of 200 bytes may claim any size, so the size in the header is checked before the pixels are decoded.
    """
    too_large = f"{str(file)!r} is too large to be read: the limit is {Image.MAX_IMAGE_PIXELS:,} pixels. Remove it."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as opened:
                width, height = opened.size
                if max(width, height) <= _NARROWEST * min(width, height):
                    return opened.convert("RGB")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise LrpeError(too_large) from None
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError):
        return None
    raise LrpeError(f"{str(file)!r} is {width} × {height} pixels, too narrow to be cropped to a square. Remove it.")


def load_images(path: Path, size: _Side = 224, augment: Augment | None = Augment()) -> Dataset:  # noqa: B008
    """Load train/CLASS/ and val/CLASS/, or CLASS/ alone, holding out one image in ten for validation."""
    require(path.is_dir(), f"path must be a folder with one folder per class; {str(path)!r} is not a folder.")
    named = {split: next((path / n for n in names if (path / n).is_dir()), None) for split, names in _SPLITS.items()}
    folders = {split: folder for split, folder in named.items() if folder is not None}
    if "train" not in folders:
        folders = {"train": path}
    classes = sorted(folder.name for folder in folders["train"].iterdir() if folder.is_dir())
    require(
        len(classes) >= 2, f"At least two classes are needed, one folder each; {str(folders['train'])!r} has {classes}."
    )
    listed = {split: _list_files(folder, classes) for split, folder in folders.items()}
    if len(listed) == 1:
        listed = _hold_out(listed["train"])
    empty = [split for split, files in listed.items() if not files]
    require(not empty, f"Every split needs an image ({', '.join(sorted(_KINDS))}); {path} has none for {empty}.")
    splits = {
        split: _ImageFiles([f for f, _ in files], [n for _, n in files], size, augment if split == "train" else None)
        for split, files in listed.items()
    }
    facts = {"labels": len(classes), "classes": classes[:20], "image size": size, "content": _fingerprint(path, listed)}
    return Dataset("images", splits, facts, partial(show, classes=classes))  # type: ignore[arg-type]


def _load_imagenet(path: Path, size: _Side = 224, augment: Augment | None = Augment()) -> Dataset:  # noqa: B008
    return replace(load_images(path, size, augment), name="imagenet")


_Files = list[tuple[Path, int]]


def _list_files(folder: Path, classes: list[str]) -> _Files:
    """Return every image of a split with its label, in order; raise if it has a class that training lacks."""
    unknown = sorted({entry.name for entry in folder.iterdir() if entry.is_dir()} - set(classes))
    require(not unknown, f"{str(folder)!r} has classes that training lacks: {unknown[:5]}.")
    return [
        (file, label)
        for label, name in enumerate(classes)
        for file in sorted((folder / name).rglob("*"))
        if file.suffix.lower() in _KINDS
    ]


def _hold_out(files: _Files) -> dict[str, _Files]:
    """Hold out one file in ten for validation, by a hash of its class and name."""
    chosen = [int(sha256("/".join(file.parts[-2:]).encode()).hexdigest(), 16) % 10 == 0 for file, _ in files]
    pairs = list(zip(files, chosen, strict=True))
    return {"train": [f for f, out in pairs if not out], "validation": [f for f, out in pairs if out]}


def _fingerprint(root: Path, splits: dict[str, _Files]) -> str:
    """Hash all names and sizes; reading the contents of a million images would take too long."""
    text = [f"{file.relative_to(root)} {file.stat().st_size}" for files in splits.values() for file, _ in files]
    return sha256("\n".join(text).encode()).hexdigest()


def show(sample: Sample, classes: list[str]) -> str:
    pixels: Any = sample["pixels"]
    return f"{classes[sample['label']]}: {'×'.join(map(str, pixels.shape))}, mean {pixels.mean():.2f}"


_LAYOUT = "train/CLASS/*.JPEG and val/CLASS/*.JPEG"
ENTRIES = (
    Entry(
        "imagenet",
        "image",
        "ImageNet-1k: 1,281,167 training and 50,000 validation images of 1,000 classes",
        "research use only; see image-net.org",
        "https://image-net.org/challenges/LSVRC/2012",
        _LAYOUT,
        _load_imagenet,
    ),
    Entry(
        "images",
        "image",
        "any images in one folder per class",
        "your own",
        "your disk",
        f"{_LAYOUT} (any common format), or CLASS/* alone",
        load_images,
    ),
)
