"""The published pictures of Pathfinder: PNG files, and metadata that name each with its label."""

from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from lrpe.errors import LrpeError, require
from lrpe.lab.data.arena.parallel import in_parallel
from lrpe.lab.data.arena.pathfinder_paths import SIDE
from lrpe.lab.data.arena.sequences import Row

BLOCK = 64  # pictures that a process reads at a time


class Picture(NamedTuple):
    """A published picture, and where its label stands."""

    file: Path
    label: int
    said: str


def list_pictures(folder: Path) -> list[Picture]:
    """Every picture that the metadata names, file after file; those that are empty are left out, as officially."""
    files = [file for file in (folder / "metadata").iterdir() if file.suffix in (".npy", ".txt")]
    require(len(files) > 0, f"{str(folder / 'metadata')!r} has the labels as *.npy or *.txt; got neither.")
    named = [picture for file in sorted(files, key=in_order) for picture in read_metadata(folder, file)]
    missing = next((picture for picture in named if not picture.file.is_file()), None)
    require(missing is None, lambda: f"{missing.said} names {str(missing.file)!r}, which is not there.")  # type: ignore
    return [picture for picture in named if picture.file.stat().st_size]


def in_order(file: Path) -> tuple[int, str]:
    """2.npy comes before 10.npy."""
    return (int(file.stem) if file.stem.isdecimal() else -1, file.name)


def read_metadata(folder: Path, file: Path) -> Iterator[Picture]:
    """Rows of folder, file, number, label and more: as lines of text (so the release, whatever the name ends in) or as
    an array of strings."""
    for number, row in enumerate(metadata_rows(file), 1):
        said = f"{str(file)!r}, row {number}"
        require(
            len(row) >= 4 and row[3] in ("0", "1"),
            f"{said}: it has a folder, a file, a number and a label of 0 or 1; got {row[:4]}.",
        )
        picture = folder / row[0] / row[1]
        require(folder.resolve() in picture.resolve().parents, f"{said}: {row[:2]} points outside of {str(folder)!r}.")
        yield Picture(picture, int(row[3]), said)


def metadata_rows(file: Path) -> list[list[str]]:
    try:
        content = file.read_bytes()
        if content.startswith(b"\x93NUMPY"):
            return [[str(field) for field in row] for row in np.load(BytesIO(content), allow_pickle=False)]
        return [line.split() for line in content.decode("utf-8").splitlines() if line.strip()]
    except (OSError, ValueError, TypeError, EOFError, MemoryError) as error:  # a header may claim any size
        raise LrpeError(
            f"{str(file)!r} is lines of UTF-8 or an array of strings; reading it failed: {error}."
        ) from error


def stamp(pictures: list[Picture]) -> str:
    """A hash of all names, labels, sizes and times: to read the pictures takes as long as to prepare them."""
    found = sha256()
    for file, label, _ in pictures:
        state = file.stat()
        found.update(f"{file.name} {label} {state.st_size} {state.st_mtime_ns}\n".encode())
    return found.hexdigest()


def read_pictures(pictures: list[Picture], processes: int | None = None) -> Iterator[Row]:
    blocks = [pictures[start : start + BLOCK] for start in range(0, len(pictures), BLOCK)]
    for rows in in_parallel(read_block, blocks, "Pathfinder", processes, "blocks"):
        yield from rows


def read_block(pictures: list[Picture]) -> list[Row]:
    return [(picture.label, (read_pixels(picture.file),)) for picture in pictures]


def read_pixels(file: Path) -> bytes:
    try:
        with Image.open(file) as image:
            require(image.size == (SIDE, SIDE), f"{str(file)!r} is {SIDE} × {SIDE} pixels; got {image.size}.")
            return image.convert("L").tobytes()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise LrpeError(f"{str(file)!r} is no picture that can be read: {error}.") from error
