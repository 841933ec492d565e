"""Pathfinder of Long-Range Arena: the published 32 × 32 pictures, or any number of generated ones."""

from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from lrpe.errors import LrpeError, require, unknown_name
from lrpe.lab.data.arena.pathfinder_generator import DIFFICULTIES, SIDE, Difficulty, draw
from lrpe.lab.data.arena.sequences import Row, Sequences, Size, sequence_facts, store
from lrpe.lab.data.dataset import Dataset, Entry, Sample
from lrpe.lab.data.jobs import Processes, in_parallel
from lrpe.schema import Seed

_VERSION = 1  # of the cached format
_FOLDERS = {"easy": "curv_baseline", "intermediate": "curv_contour_length_9", "hard": "curv_contour_length_14"}
BLOCK = 64  # pictures per job
_SHARES = {"train": (0, 80), "validation": (80, 90), "test": (90, 100)}  # percentages of the published pictures


class _Picture(NamedTuple):
    """A published picture, and the metadata row that gives its label."""

    file: Path
    label: int
    source: str


def _list_pictures(folder: Path) -> list[_Picture]:
    """List the pictures in the metadata, file after file, without the empty ones, as in the official loader."""
    files = [file for file in (folder / "metadata").iterdir() if file.suffix in (".npy", ".txt")]
    require(len(files) > 0, f"{str(folder / 'metadata')!r} must contain the labels as *.npy or *.txt; it has neither.")
    named = [picture for file in sorted(files, key=_sort_key) for picture in _read_metadata(folder, file)]
    missing = next((picture for picture in named if not picture.file.is_file()), None)
    require(missing is None, lambda: f"{missing.source} names {str(missing.file)!r}, which does not exist.")  # type: ignore
    return [picture for picture in named if picture.file.stat().st_size]


def _sort_key(file: Path) -> tuple[int, str]:
    """Sort 2.npy before 10.npy."""
    return (int(file.stem) if file.stem.isdecimal() else -1, file.name)


def _read_metadata(folder: Path, file: Path) -> Iterator[_Picture]:
    """Yield the pictures of a metadata file: rows of folder, file, number, label and more.

    The rows are lines of text, even in the release's files named .npy, or an array of strings.
    """
    for number, row in enumerate(_read_rows(file), 1):
        source = f"{str(file)!r}, row {number}"
        require(
            len(row) >= 4 and row[3] in ("0", "1"),
            f"{source}: it must have a folder, a file, a number and a label of 0 or 1; got {row[:4]}.",
        )
        picture = folder / row[0] / row[1]
        require(
            folder.resolve() in picture.resolve().parents, f"{source}: {row[:2]} points outside of {str(folder)!r}."
        )
        yield _Picture(picture, int(row[3]), source)


def _read_rows(file: Path) -> list[list[str]]:
    try:
        content = file.read_bytes()
        if content.startswith(b"\x93NUMPY"):
            return [[str(field) for field in row] for row in np.load(BytesIO(content), allow_pickle=False)]
        return [line.split() for line in content.decode("utf-8").splitlines() if line.strip()]
    except (OSError, ValueError, TypeError, EOFError, MemoryError) as error:  # MemoryError: a header may claim any size
        raise LrpeError(
            f"{str(file)!r} must be lines of UTF-8 or an array of strings; reading it failed: {error}."
        ) from error


def _hash_states(pictures: list[_Picture]) -> str:
    """Hash all names, labels, sizes and times; reading the pictures would take as long as preparing them."""
    digest = sha256()
    for file, label, _ in pictures:
        state = file.stat()
        digest.update(f"{file.name} {label} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _read_pictures(pictures: list[_Picture], processes: int | None = None) -> Iterator[Row]:
    blocks = [pictures[start : start + BLOCK] for start in range(0, len(pictures), BLOCK)]
    for rows in in_parallel(_read_block, blocks, "Pathfinder", processes, "blocks"):
        yield from rows


def _read_block(pictures: list[_Picture]) -> list[Row]:
    return [(picture.label, (_read_pixels(picture.file),)) for picture in pictures]


def _read_pixels(file: Path) -> bytes:
    try:
        with Image.open(file) as image:
            require(image.size == (SIDE, SIDE), f"{str(file)!r} must be {SIDE} × {SIDE} pixels; got {image.size}.")
            return image.convert("L").tobytes()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise LrpeError(f"{str(file)!r} cannot be read as a picture: {error}.") from error


def load_generated(
    difficulty: str = "hard",
    train: Size = 16_000,
    validation: Size = 2_000,
    test: Size = 2_000,
    seed: Seed = 0,
    processes: Processes | None = None,
) -> Dataset:
    """Generate pictures; ``difficulty`` is easy, intermediate or hard: paths of 6, 9 or 14 dashes."""
    if difficulty not in DIFFICULTIES:
        raise unknown_name("difficulty", difficulty, DIFFICULTIES)
    sizes = {"train": train, "validation": validation, "test": test}
    require(min(sizes.values()) >= 1, f"train, validation and test must each be at least 1; got {sizes}.")
    recipe = {"version": _VERSION, "seed": seed, "total": sum(sizes.values()), "difficulty": difficulty}
    rows = partial(generate, sum(sizes.values()), seed, DIFFICULTIES[difficulty], processes)
    stored_splits, content = store(Sequences, "pathfinder", recipe, {"all": rows})
    whole = stored_splits["all"]
    parts = (whole.part(0, train), whole.part(train, train + validation), whole.part(train + validation, len(whole)))
    return _make_dataset(
        "pathfinder", dict(zip(sizes, parts, strict=True)), seed=seed, difficulty=difficulty, content=content
    )


def generate(total: int, seed: int, difficulty: Difficulty, processes: int | None = None) -> Iterator[Row]:
    """Yield pictures 0 ... total - 1 of a seed, the same for any number of processes."""
    blocks = [range(start, min(start + BLOCK, total)) for start in range(0, total, BLOCK)]
    for rows in in_parallel(partial(_draw_block, seed, difficulty), blocks, "Pathfinder", processes, "blocks"):
        yield from rows


def _draw_block(seed: int, difficulty: Difficulty, numbers: range) -> list[Row]:
    drawn = (draw(seed, number, difficulty) for number in numbers)
    return [(label, (picture.tobytes(),)) for label, picture in drawn]


def load_official(path: Path, difficulty: str = "hard", processes: Processes | None = None) -> Dataset:
    """Load the published folders, under ``path`` or ``path``/pathfinder32.

    In the order of the metadata, the first 80 % are for training, then 10 % each for validation and test.
    """
    if difficulty not in _FOLDERS:
        raise unknown_name("difficulty", difficulty, _FOLDERS)
    roots = [root / _FOLDERS[difficulty] for root in (path, path / "pathfinder32")]
    folder = next((root for root in roots if (root / "metadata").is_dir()), None)
    if folder is None:
        raise LrpeError(
            f"difficulty={difficulty!r} is read from metadata/ and imgs/ in {str(roots[0])!r}; metadata/ is missing."
        )
    pictures = _list_pictures(folder)
    parts = {name: pictures[len(pictures) * a // 100 : len(pictures) * b // 100] for name, (a, b) in _SHARES.items()}
    recipe = {"version": _VERSION, "difficulty": difficulty, "sources": _hash_states(pictures)}
    rows = {name: partial(_read_pictures, part, processes) for name, part in parts.items()}
    splits, content = store(Sequences, "lra-pathfinder", recipe, rows)
    return _make_dataset("lra-pathfinder", splits, content=content, difficulty=difficulty)


def _make_dataset(name: str, splits: dict[str, Sequences], **more: object) -> Dataset:
    return Dataset(
        name, {**splits}, sequence_facts(splits, vocabulary=256, labels=2, padding=None, side=SIDE, **more), show
    )


def show(sample: Sample) -> str:
    rows = sample["ids"].reshape(SIDE, SIDE)[::2, ::2]
    drawn = "|".join("".join(" .:*#"[pixel // 52] for pixel in row) for row in rows)
    return f"{('apart', 'connected')[sample['label']]}: {drawn}"


ENTRIES = (
    Entry(
        "pathfinder",
        "sequence",
        "are two dots joined by a dashed path? 32 × 32 pixels, generated",
        "MIT (generated here)",
        "generated by lrpe",
        None,
        load_generated,
    ),
    Entry(
        "lra-pathfinder",
        "sequence",
        "Pathfinder of Long-Range Arena, the published 32 × 32 pictures",
        "Apache 2.0 (Long-Range Arena), MIT (the generator of Linsley et al.)",
        "https://github.com/google-research/long-range-arena (lra_release.gz, pathfinder32)",
        "pathfinder32/{curv_baseline,curv_contour_length_9,curv_contour_length_14}/{imgs/*/*.png,metadata/*.npy}",
        load_official,
    ),
)
